"""Whatever is sent, the answer is as the description says, and never a fault of the server."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import httpx
import pytest
import schemathesis
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from schemathesis.checks import CHECKS

if TYPE_CHECKING:
    from viewkeep import Database
    from viewkeep.serve.server import Server

    Serve = Callable[..., Server]

NAMES = ["votes", "sales", "scores", "total", "yearly", "wide", "nope"]
CHECKED = (
    "not_a_server_error",
    "status_code_conformance",
    "content_type_conformance",
    "response_schema_conformance",
)
EXAMPLES = settings(
    max_examples=25,
    deadline=None,
    database=None,
    suppress_health_check=list(HealthCheck),
)


@pytest.fixture
def fuzzed(site: Database, serve: Serve) -> Server:
    site.sql(
        "CREATE TABLE wide (id BIGINT, b BOOLEAN, d DOUBLE, m DECIMAL(10,2), s STRING, x BINARY, "
        "day DATE, t TIMESTAMP, PRIMARY KEY (s, day, m, t, b, d, x))"
    )
    return serve(site, max_seconds=2)


def described(server: Server) -> dict[str, Any]:
    """The server's description, narrowed to names that there are, so that the rest is reached."""
    found = httpx.get(f"{server.http_url}/v1/openapi.json").json()
    for operations in found["paths"].values():
        for operation in operations.values():
            for parameter in operation.get("parameters", []):
                if parameter["in"] == "path":
                    parameter["schema"] = {"type": "string", "enum": NAMES}
    found["components"]["schemas"]["Wanted"]["properties"]["name"]["enum"] = NAMES
    assert isinstance(found, dict)
    return found


def test_as_described(fuzzed: Server) -> None:
    # Each operation in turn; feeds have no end, and have their own tests.
    schema = schemathesis.openapi.from_dict(described(fuzzed))
    checks = [CHECKS.get_one(name) for name in CHECKED]
    ran = []
    for found in schema.get_all_operations():
        operation = found.ok()
        if operation.path.endswith("/changes") or operation.path.startswith("/dashboard"):
            continue

        @EXAMPLES
        @given(case=operation.as_strategy())
        def run(case: Any) -> None:
            # That a server is not ready is no fault of it.
            wanted = checks[1:] if case.operation.path == "/ready" else checks
            case.call_and_validate(base_url=fuzzed.http_url, checks=wanted)

        run()
        ran.append(operation.label)
    assert len(ran) >= 15
    assert httpx.get(f"{fuzzed.http_url}/health").status_code == 200


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False)
    | st.text()
    | st.sampled_from(["NaN", "2024-02-29", "AAEC", "1e400", "votes", "eu"]),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(
            st.sampled_from([*"bdmsxt", "id", "day", "rows", "name", "key", "keys", "slice"])
            | st.text(max_size=5),
            inner,
            max_size=4,
        )
    ),
    max_leaves=12,
)
WORDS = (
    "SELECT * FROM votes wide scores ; WHERE id = ? 1 ' \" ( ) , -- /* */ CAST AS "
    "INSERT INTO VALUES VIEW CREATE DROP a.b NULL LIMIT ORDER BY \\ \0 é"
)
SHAPES = {
    "/v1/wide/rows": st.fixed_dictionaries(
        {"rows": st.lists(st.dictionaries(st.sampled_from([*"bdmsxt", "id", "day"]), JSON))}
    ),
    "/v1/wide/delete": st.fixed_dictionaries({"keys": st.lists(JSON, max_size=4)}),
    "/v1/read": st.fixed_dictionaries(
        {
            "reads": st.lists(
                st.fixed_dictionaries(
                    {"name": st.sampled_from(NAMES)},
                    optional={
                        "key": JSON,
                        "keys": st.lists(JSON, max_size=3),
                        "prefix": JSON,
                        "from": JSON,
                        "to": JSON,
                        "slice": st.dictionaries(st.sampled_from([*"bdmsxt", "day", "year"]), JSON),
                    },
                ),
                max_size=3,
            )
        }
    ),
    "/v1/sql": st.fixed_dictionaries(
        {
            "sql": st.lists(
                st.sampled_from(WORDS.split(" ")) | st.text(max_size=8),
                max_size=12,
            ).map(" ".join)
        },
        optional={"parameters": st.lists(JSON, max_size=3), "at": st.text(max_size=5)},
    ),
}


@pytest.mark.parametrize("path", SHAPES)
def test_bodies_of_the_right_shape(fuzzed: Server, path: str) -> None:
    """Objects with the right names and anything in them: a clean error, or done."""
    with httpx.Client(base_url=fuzzed.http_url) as client:

        @settings(EXAMPLES, max_examples=150)
        @given(body=SHAPES[path])
        def run(body: object) -> None:
            text = json.dumps(body)  # escapes half pairs of surrogates, which JSON may hold
            headers = {"content-type": "application/json"}
            answer = client.post(path, content=text, headers=headers)
            assert answer.status_code in (200, 400, 404, 409, 413), (body, answer.text)
            if answer.status_code != 200:
                assert set(answer.json()["error"]) == {"kind", "message", "fragment", "hint"}

        run()


def test_bodies_of_any_bytes(fuzzed: Server) -> None:
    with httpx.Client(base_url=fuzzed.http_url) as client:

        @EXAMPLES
        @given(body=st.binary(max_size=200), path=st.sampled_from(sorted(SHAPES)))
        def run(body: bytes, path: str) -> None:
            headers = {"content-type": "application/json"}
            answer = client.post(path, content=body, headers=headers)
            assert answer.status_code in (200, 400)

        run()


def test_urls_of_anything(fuzzed: Server) -> None:
    values = st.text(max_size=12) | st.sampled_from(["eu", "2024-02-29", "1.5", "NaN", "true"])
    names = st.sampled_from(["key", "prefix", "from", "to", "slice", "after", "token", "measure"])
    with httpx.Client(base_url=fuzzed.http_url) as client:

        @settings(EXAMPLES, max_examples=150)
        @given(
            name=st.sampled_from(NAMES),
            route=st.sampled_from(["row", "rows", "aggregate"]),
            query=st.lists(st.tuples(names, values), max_size=8),
        )
        def run(name: str, route: str, query: list[tuple[str, str]]) -> None:
            clean = [(key, value.encode("utf-8", "replace").decode()) for key, value in query]
            answer = client.get(f"/v1/{name}/{route}", params=clean)
            assert answer.status_code in (200, 400, 404, 410), (query, answer.text)

        run()
