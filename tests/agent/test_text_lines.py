"""Pieces of text on the short way: byte for byte what every other event is told with."""

from coupler.agent.output import TextUpdateEncoder
from coupler.events import Text
from coupler.events.v1_codec import to_update
from coupler.schema.v1 import SessionNotification
from coupler.wire.messages import encode_text, notification
from tables import table

SESSION = 'sess_"1"'


def the_long_way(piece):
    return notification("session/update", SessionNotification(SESSION, to_update(piece, ())))


@table(
    "text", ["plain", "", 'a "quoted" word', "two\nlines\r\n", "ünïcode 🙂", "\ud83d", "\x00\x1f", "{}", "\\"]
)
@table("message_id", ["msg_1", 'odd "id"\n', "\ud83d", None, ""])
def test_a_line_is_the_same_as_on_the_long_way(text, message_id):
    head, tail = TextUpdateEncoder(SESSION).around(message_id)

    assert head + encode_text(text) + tail == the_long_way(Text(text, message_id))
