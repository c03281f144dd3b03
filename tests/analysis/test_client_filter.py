import pytest
from hypothesis import given
from hypothesis import strategies as st

from analysis.client_filter import ClientFilter, no_rows, parse
from analysis.errors import AnalysisError


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("user=alice", {"user": "alice"}),
        ("client-id=web", {"client_id": "web"}),
        ("user=alice,client-id=web", {"user": "alice", "client_id": "web"}),
        ("user=alice, client-id=web", {"user": "alice", "client_id": "web"}),
        ("client-id=web,user=alice", {"user": "alice", "client_id": "web"}),
        ("user=CN=pay,OU=a b,C=DE,client-id=x=y", {"user": "CN=pay,OU=a b,C=DE", "client_id": "x=y"}),
        ("user='a,client-id=b',client-id=c", {"user": "a,client-id=b", "client_id": "c"}),
        ('user="o\'hara"', {"user": "o'hara"}),
        (r"user='a\u202eb'", {"user": "a\u202eb"}),
        ("user=o'hara", {"user": "o'hara"}),
        ("client-id=''", {"client_id": ""}),
        ("client-id='<default>'", {"client_id": "<default>"}),
        ("ip=10.0.0.5", {"ip": "10.0.0.5"}),
        ("ip=2001:DB8:0:0::1", {"ip": "2001:db8::1"}),
        ("ip=other", {"ip": "other"}),
    ],
)
def test_client_filter_text_is_parsed_to_names(text: str, names: dict[str, str]) -> None:
    assert parse(text).names == names


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("alice", "'alice' names no client: write --client user=alice"),
        ("", "names no client"),
        ("user=", "names no client"),
        ("user=''", "the user is empty"),
        ("user=a,user=b", "names no client"),
        ("user-group=a", "names no client"),
        ("user='a", "names no client"),
        ("user='a'b", "names no client"),
        (r"user='\x'", "quoted wrongly"),
        ("user=<default>", "user=<default> is a quota, and no client"),
        ("ip=10.0.0.5,user=a", "an ip has no user"),
        ("ip=example.com", "'example.com' is no address"),
    ],
)
def test_invalid_client_filter_is_refused_with_an_example(text: str, said: str) -> None:
    with pytest.raises(AnalysisError) as raised:
        parse(text)
    assert said in str(raised.value)
    assert "user=alice,client-id=web" in str(raised.value)


@given(st.text(min_size=1, max_size=40), st.text(max_size=40))
def test_described_client_filter_parses_back(user: str, client_id: str) -> None:
    chosen = ClientFilter({"user": user, "client_id": client_id})
    assert parse(chosen.describe()).names == chosen.names


def test_client_filter_folder_name_is_safe_and_unique() -> None:
    assert parse("user=alice,client-id=web").folder().startswith("client=user-alice_client-id-web-")
    folders = {
        parse(text).folder() for text in ("user=a/../b", "user=a_.._b", f"user={'x' * 200}", f"user={'x' * 201}")
    }
    assert len(folders) == 4
    assert all("/" not in each and len(each) < 90 for each in folders)


def test_client_without_rows_is_told_the_nearest_names() -> None:
    known = {"user": ["alice", "alicia", "bob"]}
    said = str(no_rows(parse("user=alise"), known, " from 12:00 to 13:00 UTC"))
    assert said.startswith("no usage records of user=alise from 12:00 to 13:00 UTC: 3 others have a user in it")
    assert said.endswith("the nearest: user=alice, user=alicia")
    both = str(no_rows(parse("user=alice,client-id=x"), {**known, "client_id": []}, ""))
    assert both.endswith("user=alice has rows, but not with the other name; 0 others have a client-id in it")
