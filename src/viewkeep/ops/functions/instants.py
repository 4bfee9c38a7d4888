from viewkeep.ops.functions.function import Function

FUNCTIONS: tuple[Function, ...] = ()
