"""The commands about the users file of a server: users add, users remove, users list."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Annotated

import typer

from viewkeep.cli.app import Commands, Json, app
from viewkeep.cli.output import console, print_json
from viewkeep.errors import InvalidSetting, UnknownName
from viewkeep.serve.users import ROLES, new_user, read_users, write_users

PASSWORD_VARIABLE = "VIEWKEEP_USER_PASSWORD"

users = typer.Typer(cls=Commands, no_args_is_help=True)
app.add_typer(users, name="users")

Name = Annotated[str, typer.Argument(metavar="NAME", help="The user's name.")]
File = Annotated[Path, typer.Argument(metavar="FILE", help="The users file.")]


@users.callback()
def about() -> None:
    """Keep the file of users that `viewkeep serve --users FILE` lets in. It holds no passwords.

    Example: viewkeep users add ann --role write news.users
    """


@users.command()
def add(
    name: Name,
    file: File,
    role: Annotated[str, typer.Option(help="read, write, or admin.")],
    no_mysql: Annotated[
        bool, typer.Option("--no-mysql", help="Keep nothing that MySQL needs: only for HTTP.")
    ] = False,
) -> None:
    """Add a user, or change one's role and password; makes the file if it is not there.

    The password is $VIEWKEEP_USER_PASSWORD, else asked for, or without a terminal read from stdin.
    """
    if role not in ROLES:
        raise typer.BadParameter(f"--role is read, write or admin, not {role}")
    known = read_users(file) if file.exists() else {}
    said = "Changed" if name in known else "Added"
    known[name] = new_user(name, role, _password(), mysql=not no_mysql)
    write_users(file, known.values())
    console.print(
        f"{said} user {name} with the role {role}. Running servers see it within a second."
    )


@users.command()
def remove(name: Name, file: File) -> None:
    """Remove a user."""
    known = read_users(file)
    if known.pop(name, None) is None:
        raise UnknownName(f"there is no user {name} in {file}")
    write_users(file, known.values())
    console.print(f"Removed user {name}. Running servers see it within a second.")


@users.command("list")
def list_users(file: File, as_json: Json = False) -> None:
    """List the users with their roles."""
    known = read_users(file).values()
    if as_json:
        print_json([{"name": user.name, "role": user.role} for user in known])
        return
    for user in known:
        console.print(f"{user.name}  {user.role}", highlight=False)


def _password() -> str:
    given = os.environ.get(PASSWORD_VARIABLE)
    if given is None:
        if sys.stdin.isatty():
            typed: str = typer.prompt("Password", hide_input=True, confirmation_prompt=True)
            return typed
        given = sys.stdin.readline().rstrip("\r\n")
    if not given:
        raise InvalidSetting("the password is empty")
    return given
