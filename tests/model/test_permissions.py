"""Users and permissions as tables: spec crud 6.2 to 6.5, spec search 1.8."""

from collections.abc import Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from persistence.errors import BadRequestError
from persistence.forms.definition_metadata import check_permissions, read_permissions
from persistence.model.permissions import (
    ANONYMOUS,
    EVERYBODY,
    FINDING,
    NOBODY,
    OPERATIONS,
    GrantCondition,
    OwnerPattern,
    OwnerSet,
    Permission,
    Permissions,
    Role,
    User,
    UserRole,
    from_headers,
    from_json,
    on_creation,
    on_data,
    on_data_of,
    owners_with,
    parse_credentials,
    readable_owners,
    searchable_owners,
    without_data,
)

LEAVE = """<permissions>
    <permission operations="create -list"/>
    <permission operations="read update -list"><any-authenticated-user/></permission>
    <permission operations="read update"><owner/></permission>
    <permission operations="read"><group-member/></permission>
    <permission operations="read"><anyone-with-token/></permission>
    <permission operations="read update delete"><user-role any-of="hr-admin payroll%20clerk"/></permission>
</permissions>"""
LEA = User("lea", "staff")
BOB = User("bob", "staff")
ZOE = User("zoe")
PARIS = User("pia", organization=("Corp", "France", "Paris"))
CLERK = '<user-role any-of="clerk"/>'


def plain(name: str) -> User:
    return User("ren", roles=(Role(name),))


def bound(name: str, organization: str, *own: str) -> User:
    return User("ren", roles=(Role(name, organization),), organization=own)


def sees(permissions: Permissions | None, user: User, owner: User, any_of: Iterable[str]) -> bool:
    """Return whether a search for data on which the user has one of the operations finds data of the owner."""
    return searchable_owners(permissions, user, any_of).includes(owner)


def one(operations: str, conditions: str) -> Permissions:
    return read_permissions(
        f'<permissions><permission operations="{operations}">{conditions}</permission></permissions>'
    )


@pytest.mark.parametrize(
    ("user", "granted"),
    [
        (ANONYMOUS, "create"),
        (LEA, "create read update list"),
        (BOB, "create read update list"),
        (ZOE, "create read update"),
        (plain("hr-admin"), "create read update delete list"),
        (plain("payroll clerk"), "create read update delete list"),
    ],
    ids=lambda value: str(getattr(value, "name", value)),
)
def test_the_worked_example(user: User, granted: str) -> None:
    """6.5: a document owned by lea of group staff."""
    assert on_data(read_permissions(LEAVE), user, LEA).text == granted


@pytest.mark.parametrize(
    ("operations", "granted"),
    [
        ("read", "read list"),
        ("read -list", "read"),
        ("-list", ""),
        ("", "list"),
        ("list", "list"),
        ("delete update read create", "create read update delete list"),
        ("  read\n\tupdate ", "read update list"),
        ("update", "update list"),
        ("fly read", "read list"),
    ],
)
def test_list_is_implied_and_nothing_else(operations: str, granted: str) -> None:
    """6.2: unless -list is there; update does not imply read."""
    assert on_data(one(operations, ""), ANONYMOUS, ANONYMOUS).text == granted


CONDITIONS = [
    # condition, user, owner, with data, without data
    ("", ANONYMOUS, LEA, True, True),
    ("<any-authenticated-user/>", ANONYMOUS, LEA, False, False),
    ("<any-authenticated-user/>", ZOE, LEA, True, True),
    ("<owner/>", LEA, LEA, True, False),
    ("<owner/>", BOB, LEA, False, False),
    ("<owner/>", ANONYMOUS, ANONYMOUS, False, False),
    ("<group-member/>", BOB, LEA, True, False),
    ("<group-member/>", ZOE, LEA, False, False),
    ("<group-member/>", ZOE, User("a"), False, False),
    (CLERK, plain("clerk"), LEA, True, True),
    (CLERK, plain("Clerk"), LEA, False, False),
    ('<user-role any-of="boss clerk"/>', plain("clerk"), LEA, True, True),
    ('<user-role any-of=""/>', plain("clerk"), LEA, False, False),
    ("<user-role/>", plain("clerk"), LEA, False, False),
    ('<user-role any-of="gr%C3%BCn%20rot"/>', plain("grün rot"), LEA, True, True),
    (CLERK, bound("clerk", "France"), PARIS, True, False),
    (CLERK, bound("clerk", "Spain"), PARIS, False, False),
    (CLERK, bound("clerk", "France"), LEA, False, False),
    ("<anyone-with-token/>", LEA, LEA, False, False),
    ("<phase-of-the-moon/>", LEA, LEA, False, False),
    (f"<owner/>{CLERK}", LEA, LEA, False, False),
    (f"<owner/>{CLERK}", User("lea", roles=(Role("clerk"),)), LEA, True, False),
]


@pytest.mark.parametrize(("conditions", "user", "owner", "with_data", "without"), CONDITIONS)
def test_conditions(conditions: str, user: User, owner: User, with_data: bool, without: bool) -> None:  # noqa: FBT001
    """6.4: all conditions of a permission must hold; without data those on the owner fail."""
    permissions = one("read", conditions)
    assert on_data(permissions, user, owner).allows("read") is with_data
    assert without_data(permissions, user).allows("read") is without


@pytest.mark.parametrize(
    ("conditions", "user", "granted"),
    [
        ("<owner/>", LEA, "create"),
        ("<owner/>", ANONYMOUS, ""),
        ("<group-member/>", LEA, "create"),
        ("<group-member/>", ZOE, ""),
        (CLERK, bound("clerk", "Paris", "Corp", "Paris"), "create"),
        (CLERK, bound("clerk", "Rome", "Corp", "Paris"), ""),
    ],
)
def test_to_create_the_user_counts_as_the_owner(conditions: str, user: User, granted: str) -> None:
    """6.4, special case: for create only."""
    assert without_data(one("create update", conditions), user).text == granted


@pytest.mark.parametrize(
    ("user", "granted"), [(ANONYMOUS, "create"), (ZOE, "create read update list"), (LEA, "create read update list")]
)
def test_who_creates_will_own(user: User, granted: str) -> None:
    """6.4: with create, the operations for owners and group members come on top."""
    assert on_creation(read_permissions(LEAVE), user).text == granted
    assert on_creation(one("read update", "<owner/>"), user).text == ""


def test_undefined_is_everything_and_empty_is_nothing() -> None:
    """6.2: no element, against an empty one."""
    assert on_data(None, ANONYMOUS, LEA).text == on_creation(None, ANONYMOUS).text == "*"
    assert on_data(read_permissions("<permissions/>"), LEA, LEA).text == ""
    assert not on_data((), LEA, LEA).allows("read")


@pytest.mark.parametrize(
    ("text", "user", "granted"),
    [
        ('{"anyone":["create"]}', ANONYMOUS, "create"),
        ('{"owner":["read","update"]}', LEA, "read update"),
        ('{"owner":["read"]}', BOB, ""),
        ('{"group-member":["read"]}', BOB, "read"),
        ('{"roles":{"hr-admin":["read","list"],"boss":["delete"]}}', plain("hr-admin"), "read list"),
        ('{"any-authenticated-user":["read"]}', ZOE, "read"),
        ('{"any-authenticated-user":["read"]}', ANONYMOUS, ""),
        ('{"anyone-with-token":["read"]}', LEA, ""),
        ("{}", LEA, ""),
    ],
)
def test_json(text: str, user: User, granted: str) -> None:
    """6.3: list is not implied here."""
    assert on_data(from_json(text), user, LEA).text == granted


@pytest.mark.parametrize(
    "text",
    ["", "[]", "{", '{"everyone":["read"]}', '{"owner":"read"}', '{"owner":["fly"]}', '{"roles":["read"]}', "1" * 9999],
)
def test_json_that_is_not_understood_is_refused(text: str) -> None:
    with pytest.raises(BadRequestError, match="malformed permissions"):
        from_json(text)


@pytest.mark.parametrize(
    ("permission", "cause"),
    [
        ('<permission operations="*"/>', "unknown operation: '\\*'"),
        ('<permission operations="read fly"/>', "unknown operation: 'fly'"),
        ('<permission operations="read"><phase-of-the-moon/></permission>', "unknown condition"),
    ],
)
def test_an_author_is_told_of_what_would_not_work(permission: str, cause: str) -> None:
    with pytest.raises(BadRequestError, match=cause):
        check_permissions(f"<permissions>{permission}</permissions>")
    check_permissions(LEAVE)


def seen(*holders: OwnerPattern) -> OwnerSet:
    return OwnerSet(frozenset(holders))


IN_PARIS = seen(OwnerPattern(organizations=(frozenset({"Paris"}),)))


@pytest.mark.parametrize(
    ("permissions", "user", "any_of", "seen"),
    [
        (None, ANONYMOUS, (), EVERYBODY),
        ((), LEA, FINDING, NOBODY),
        (one("create", ""), LEA, FINDING, NOBODY),
        (one("read", ""), ANONYMOUS, ("list",), EVERYBODY),
        (one("read", ""), ANONYMOUS, ("update",), NOBODY),
        (one("read", "<owner/>"), LEA, FINDING, seen(OwnerPattern("lea"))),
        (one("read", "<owner/>"), LEA, ("delete",), NOBODY),
        (one("read", "<owner/>"), ANONYMOUS, FINDING, NOBODY),
        (one("create", "<owner/>"), LEA, ("create",), EVERYBODY),
        (one("read", "<group-member/>"), BOB, FINDING, seen(OwnerPattern(group="staff"))),
        (one("read", "<group-member/>"), ZOE, FINDING, NOBODY),
        (one("read", "<owner/><group-member/>"), BOB, FINDING, seen(OwnerPattern("bob"), OwnerPattern(group="staff"))),
        (one("read", CLERK), plain("clerk"), FINDING, EVERYBODY),
        (one("read", CLERK), bound("clerk", "Paris"), ("create",), IN_PARIS),
        (one("create", CLERK), bound("clerk", "Paris"), ("delete",), NOBODY),
        (one("read", f"<owner/>{CLERK}"), LEA, FINDING, seen(OwnerPattern("lea"))),
        (one("read", f"<owner/>{CLERK}"), plain("clerk"), FINDING, seen(OwnerPattern("ren"))),
        (one("read", f"<group-member/>{CLERK}"), bound("clerk", "Paris"), FINDING, IN_PARIS),
        (one("read", "<anyone-with-token/>"), LEA, FINDING, NOBODY),
    ],
)
def test_whose_documents_a_search_looks_at(
    permissions: Permissions | None, user: User, any_of: tuple[str, ...], seen: OwnerSet
) -> None:
    """Search 1.8, steps 1 to 3: one condition that holds is enough."""
    assert searchable_owners(permissions, user, any_of) == seen


_names = st.sampled_from(["ann", "bob", None])
_groups = st.sampled_from(["staff", "sales", None])
_levels = st.lists(st.sampled_from(["Corp", "Paris"]), max_size=2, unique=True).map(tuple)
_roles = st.lists(
    st.builds(Role, st.sampled_from(["clerk", "boss"]), st.sampled_from(["Corp", "Paris", None])), max_size=2
)
_users = st.builds(User, _names, _groups, _roles.map(tuple))
_owners = st.builds(User, _names, _groups, organization=_levels)
_conditions = st.sampled_from([*GrantCondition]) | st.builds(
    UserRole, st.sampled_from([frozenset({"clerk"}), frozenset({"boss", "x"})])
)
_permissions = st.none() | st.lists(
    st.builds(
        Permission, st.frozensets(st.sampled_from(OPERATIONS), max_size=3), st.lists(_conditions, max_size=2).map(tuple)
    ),
    max_size=3,
).map(tuple)


def row_tests_hold(permission: Permission, user: User, owner: User, asked: set[str]) -> bool:
    """Search 1.8, step 2, for one row."""
    own = {
        GrantCondition.OWNER: user.name == owner.name is not None,
        GrantCondition.GROUP_MEMBER: user.group == owner.group is not None,
    }
    for condition in permission.conditions:
        if isinstance(condition, UserRole):
            organizations = {role.organization for role in user.roles if role.name in condition.any_of}
            if permission.operations & set(FINDING) and organizations & set(owner.organization):
                return True
        elif permission.operations & asked and own.get(condition):
            return True
    return False


@given(_permissions, _users, _owners, st.sets(st.sampled_from(OPERATIONS)))
def test_what_is_seen_is_what_the_tests_of_each_row_say(
    permissions: Permissions | None, user: User, owner: User, asked: set[str]
) -> None:
    expected = without_data(permissions, user).allows(*asked) or any(
        row_tests_hold(each, user, owner, asked) for each in permissions or ()
    )
    assert sees(permissions, user, owner, asked) is expected
    if searchable_owners(permissions, user, asked) == NOBODY:
        assert not expected


@given(_permissions, _users, _owners, st.sets(st.sampled_from(FINDING)))
def test_who_may_read_update_or_delete_finds(
    permissions: Permissions | None, user: User, owner: User, asked: set[str]
) -> None:
    """The reverse does not hold: a row may be found with operations that do not meet what was asked for."""
    if on_data(permissions, user, owner).allows(*asked):
        assert sees(permissions, user, owner, asked)


@given(_permissions, _users, _owners, st.sets(st.sampled_from(OPERATIONS)))
def test_documents_are_seen_exactly_where_they_may_be_read(
    permissions: Permissions | None, user: User, owner: User, asked: set[str]
) -> None:
    allowed = on_data(permissions, user, owner)
    assert owners_with(permissions, user, asked).includes(owner) is (permissions is None or allowed.allows(*asked))
    seen = all(each.includes(owner) for each in readable_owners(permissions, user, asked))
    assert seen is (allowed.allows("read") and (permissions is None or allowed.allows(*asked)))


def granted(permissions: Iterable[Permission], user: User, owner: User | None) -> set[str]:
    """The rule of spec crud 6.4 word by word: the operations of all permissions whose conditions hold."""

    def holds(condition: GrantCondition | UserRole) -> bool:
        if isinstance(condition, UserRole):
            places = {None} | set(owner.organization if owner is not None else ())
            return any(role.name in condition.any_of and role.organization in places for role in user.roles)
        return {
            GrantCondition.AUTHENTICATED: user.name is not None,
            GrantCondition.OWNER: owner is not None and user.name is not None and user.name == owner.name,
            GrantCondition.GROUP_MEMBER: owner is not None and user.group is not None and user.group == owner.group,
        }.get(condition, False)

    return {name for each in permissions if all(map(holds, each.conditions)) for name in each.operations}


@given(_permissions, _users, _owners)
def test_operations_are_those_of_the_permissions_whose_conditions_hold(
    permissions: Permissions | None, user: User, owner: User
) -> None:
    """To create, the user counts as the owner."""
    creating = granted(permissions or (), user, user) & {"create"}
    for operations, whose in ((on_data(permissions, user, owner), owner), (without_data(permissions, user), None)):
        expected = None if permissions is None else granted(permissions, user, whose) | creating
        assert (None if operations.allowed is None else set(operations.allowed)) == expected
    for each in (permissions, None):
        assert on_data_of(each, user)(owner) == on_data(each, user, owner)


# Users, as headers say who they are


def test_credentials_are_read_as_the_specification_shows_them() -> None:
    user = parse_credentials(
        '{"username":"l%C3%A9a+b","groups":["staff","other"],"roles":[{"name":"clerk"},'
        '{"name":"manager","organization":"Paris"}],"organizations":[["Corp","France","Paris"],["X"]]}'
    )
    assert user == User("léa b", "staff", (Role("clerk"), Role("manager", "Paris")), ("Corp", "France", "Paris"))


@pytest.mark.parametrize(
    "text",
    [
        *("{", "[]", '{"groups":[]}', '{"username":1}', '{"username":"a","roles":[{}]}'),
        *('{"username":"a%0D%0Ab"}', '{"username":"a","groups":["%00"]}'),
        '{"username":"a","organizations":[["Corp","x%0D%0ASet-Cookie:%20y"]]}',
    ],
)
def test_malformed_credentials_and_smuggled_control_characters_are_refused(text: str) -> None:
    """Decoded after the server has checked the header, they would come out as headers again."""
    with pytest.raises(BadRequestError):
        parse_credentials(text)


def test_a_blank_user_is_anonymous_and_roles_are_split_at_commas_and_bars() -> None:
    assert parse_credentials('{"username":" "}') == ANONYMOUS
    assert from_headers(None, "staff", "clerk") == from_headers(" ", "staff", "clerk") == ANONYMOUS
    user = from_headers("lea", " ", "clerk, manager|admin")
    assert user == User("lea", None, (Role("clerk"), Role("manager"), Role("admin")))
