"""What counts as secret, by name and by value."""

from coupler.redaction.masker import Masker
from coupler.redaction.sources import (
    could_be_secret,
    declared_secrets,
    looks_secret,
    secret_variables,
    secrets_in_environment,
    withheld_sentence,
)
from tables import table

TOKEN = "ghp_0123456789abcdefABCDEF"


def values_in(**environment: str) -> set[str]:
    return {secret.value for secret in secrets_in_environment(environment)}


@table(
    "name",
    [
        "TOKEN", "GITHUB_TOKEN", "github_token", "API_KEY", "apiKey", "OPENAI_API_KEY", "SECRET",
        "CLIENT_SECRET", "DB_PASSWORD", "PGPASSWORD", "MYSQL_PWD", "SMTP_PASS", "SSHPASS", "PASSWD",
        "KEY_PASSPHRASE", "AWS_SECRET_ACCESS_KEY", "AWS_ACCESS_KEY_ID", "GOOGLE_CREDENTIALS",
        "DOCKER_AUTH", "AUTHORIZATION", "SESSION_COOKIE", "SENTRY_DSN",
        "AZURE_STORAGE_CONNECTION_STRING", "ConnectionString", "GITHUB_PAT", "JWT", "MYTOKEN", "TOKEN2",
        "npm_config__authToken", "Token-For-Me", "x.api.key",
    ],
)  # fmt: skip
def test_a_name_with_a_secret_word_looks_secret(name: str) -> None:
    assert looks_secret(name)


@table(
    "name",
    [
        "KEYBOARD", "MONKEY", "PATH", "AUTHOR", "GIT_AUTHOR_NAME", "HOTKEY", "TOKENIZERS_PARALLELISM",
        "PATTERN", "COMPASS", "BYPASS", "HOME", "LANG", "SECRETARY", "KEYMAP", "XAUTHORITY",
        "SSH_AUTH_SOCK", "AUTH_TYPE", "TOKEN_LIMIT", "KEY_FILE", "PASSWORD_FILE", "", "_", "1", "é",
        "STRING_CONNECTION",
    ],
)  # fmt: skip
def test_a_name_that_only_contains_the_letters_does_not(name: str) -> None:
    assert not looks_secret(name)


@table(
    "value",
    [
        TOKEN, "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY", "/K7MDENGbPxRfiCYEXAMPLEKEY99",
        "/9j4AAQSkZJRg+==", "correct horse battery staple", "abcdefghijklmnop", "hunter2hunter2",
        "Password1", "p@ssw0rd", "123456789012345678901234567890", "12345678x", "true-false-true",
        "pässwörter", "  " + TOKEN + "\n",
    ],
)  # fmt: skip
def test_a_value_that_could_be_a_secret(value: str) -> None:
    assert could_be_secret(value)


@table(
    "value",
    [
        "", "short12", "       x       ", "12345678", "-1234567.5", "1_000_000_000", "1.5e+100",
        "0xdeadbeef", "disabled", "Disabled", "TRUE", "production", "administrators", "/usr/share/keys",
        "/home/user/.ssh/id_rsa", "~/secrets/token", "./keys/one", "../keys/one", "C:\\Users\\me\\key",
        "\\\\server\\share", "keys/server.pem", "service-account.json", "https://example.com/login",
        "unix:///run/agent.sock", "/nix/store/9k3vq4m1x0z8y7w6v5u4t3s2r1q0p9o8-keys",
    ],
)  # fmt: skip
def test_a_value_that_is_said_openly(value: str) -> None:
    assert not could_be_secret(value)


@table(
    "name",
    ["PASSWORD_X", "PASSWORD", "password", "SECRET_WORD", "secret_word", "API_KEY", "API_KEY_2"],
)
def test_a_name_that_begins_with_the_word_declares_a_secret_whatever_its_value_looks_like(name: str) -> None:
    for value in ("swordfishes", "swordfish", "1234", "/usr/share/word", "https://example.com", "true"):
        assert values_in(**{name: value}) == {value}
    assert values_in(**{name: "  "}) == set()


@table("name", ["SECRETARY", "PASSWORD_FILE", "API_KEY_PATH", "PASSWORD_MODE", "MY_PASSWORD", "API"])
def test_other_names_declare_nothing(name: str) -> None:
    assert values_in(**{name: "swordfish"}) == set()


def test_a_variable_counts_only_when_name_and_value_both_look_secret() -> None:
    assert values_in(GITHUB_TOKEN=TOKEN, EDITOR=TOKEN, MY_API_KEY="production", KEYBOARD=TOKEN) == {TOKEN}


def test_a_declared_secret_counts_unless_it_is_blank_or_has_less_than_four_characters() -> None:
    declared = {
        "COLOUR": " red ",
        "PIN": "1234",
        "FLAG": "true",
        "HOME": "/home/me",
        "EMPTY": "",
        "BLANK": " \n",
    }
    found = {secret.name: secret.value for secret in declared_secrets(declared)}
    assert found == {"PIN": "1234", "FLAG": "true", "HOME": "/home/me"}
    assert [secret.name for secret in declared_secrets(declared, shortest=1)] == ["COLOUR", *found]


def test_a_declared_variable_that_is_too_short_to_be_masked_is_still_withheld() -> None:
    short = {"PASSWORD": "1", "API_KEY": "abc", "PASSWORD_X": " "}
    assert values_in(**short) == set()
    assert secret_variables(short) == ["API_KEY", "PASSWORD"]


@table(
    ("value", "expected"),
    [
        ("postgres://app:s3cr3t-pass@db.example/main", {"s3cr3t-pass"}),
        ("postgres://app:s3cr3t%2Fpass@db/main", {"s3cr3t%2Fpass", "s3cr3t/pass"}),
        ("postgres://app:s3c/r3t+pass@db/main", {"s3c/r3t+pass"}),
        ("redis://:s3cr3t-pass@cache:6379/0", {"s3cr3t-pass"}),
        ("http://proxy:s3cr@t-pass@proxy:8080", {"s3cr@t-pass"}),
        ("amqp://a:s3cr3t-pass@one,amqp://b:0ther-pass@two", {"s3cr3t-pass", "0ther-pass"}),
        ("https://example.com/search?q=a:b@c.example", set()),
        (f"https://{TOKEN}@github.com/me/it", {TOKEN}),
        (f"https://{TOKEN}:x-oauth-basic@github.com/me/it", {TOKEN}),
        (f"https://x-access-token:{TOKEN}@github.com", {TOKEN}),
        ("postgres://postgres:postgres@localhost/main", set()),
        ("ssh://git@github.com/me/it", set()),
        ("https://registry.example:8080/path/@scope/package", set()),
        (f"https://example.com/hook?token={TOKEN}&page=1", {TOKEN}),
        ("https://example.com/list?page=10000000", set()),
        ("Server=db;User Id=app;Password=s3cr3t-pass;Encrypt=true", {"s3cr3t-pass"}),
        ("host=db user=app password='s3cr3t-pass' sslmode=require", {"s3cr3t-pass"}),
        ("AccountName=me;AccountKey=Zm9vYmFyYmF6cXV4Zm9v==;X=1", {"Zm9vYmFyYmF6cXV4Zm9v=="}),
    ],
)
def test_a_password_inside_a_value_counts_whatever_the_name(value: str, expected: set[str]) -> None:
    assert values_in(SOMETHING=value) == expected


def test_an_address_under_a_secret_name_counts_by_its_password_only() -> None:
    assert values_in(SENTRY_DSN="postgres://app:s3cr3t-pass@db/main") == {"s3cr3t-pass"}
    assert values_in(AUTH_URL="https://example.com/very/long/address") == set()


def test_a_declared_address_counts_as_a_whole_and_by_its_password() -> None:
    address = "postgres://app:s3cr3t-pass@db/main"
    assert {secret.value for secret in declared_secrets({"DB": address})} == {address, "s3cr3t-pass"}


def test_the_same_environment_gives_the_same_marks_in_any_order() -> None:
    one = secrets_in_environment({"B_TOKEN": TOKEN, "A_TOKEN": TOKEN})
    other = secrets_in_environment({"A_TOKEN": TOKEN, "B_TOKEN": TOKEN})
    assert Masker(one).mask(TOKEN) == Masker(other).mask(TOKEN) == "[secret:A_TOKEN]"


def test_a_long_value_is_judged_in_no_time() -> None:
    # Values on which a careless pattern takes minutes
    for value in (
        "a " * 200_000,
        "a://" * 100_000,
        "a=" * 200_000,
        "/" * 400_000,
        "1" * 400_000,
        "a:b@" * 100_000,
    ):
        secrets_in_environment({"TOKEN": value[:130_000]})


@table(
    "environment, found",
    [
        ({"GITHUB_TOKEN": TOKEN, "LANG": "C"}, ["GITHUB_TOKEN"]),
        ({"DATABASE_URL": f"postgres://app:{TOKEN}@db/app"}, ["DATABASE_URL"]),
        ({"SSH_AUTH_SOCK": "/tmp/ssh-AbCdEf0123456789Xy/agent.1", "XAUTHORITY": "/home/ann/.Xauthority"}, []),
        ({"PWD": "/srv/AbCdEf0123456789AbCdEf", "OLDPWD": "/srv/AbCdEf0123456789AbCdEf"}, []),
        ({"GIT_CONFIG_COUNT": "1", "GIT_CONFIG_KEY_0": "user.email", "GIT_CONFIG_VALUE_0": "ann"}, []),
        (
            {
                "GIT_CONFIG_COUNT": "1",
                "GIT_CONFIG_KEY_0": "url",
                "GIT_CONFIG_VALUE_0": f"https://x:{TOKEN}@y",
            },
            ["GIT_CONFIG_COUNT", "GIT_CONFIG_VALUE_0"],
        ),
    ],
)
def test_the_variables_that_hold_secrets_are_told_from_those_that_name_places(environment, found):
    assert secret_variables(environment) == found


def test_a_variable_that_is_named_holds_a_secret_if_it_is_set():
    assert secret_variables({"DEPLOY_LOGIN": "ann"}, ["DEPLOY_LOGIN", "OTHER"]) == ["DEPLOY_LOGIN"]


def test_a_sentence_about_many_withheld_variables_names_the_first_of_them():
    names = [f"TOKEN_{number:02}" for number in range(25)]
    said = withheld_sentence(names, "`secrets`")
    assert "TOKEN_19 and 5 more (list them under `secrets` to pass them on)" in said
    assert "TOKEN_20" not in said
