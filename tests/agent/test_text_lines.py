"""Pieces of text on the short way: byte for byte what every other event is told with."""

from coupler.agent.output import TextUpdateEncoder
from coupler.events import Text
from coupler.events.v1_codec import to_update
from coupler.schema.v1 import SessionNotification
from coupler.wire.messages import notification
from tables import table

SESSION = 'sess_"1"'


def the_long_way(piece):
    return notification("session/update", SessionNotification(SESSION, to_update(piece, ())))


@table(
    "text", ["plain", "", 'a "quoted" word', "two\nlines\r\n", "ünïcode 🙂", "\ud83d", "\x00\x1f", "{}", "\\"]
)
@table("message_id", ["msg_1", 'odd "id"\n', "\ud83d", None, ""])
def test_a_line_is_the_same_as_on_the_long_way(text, message_id):
    piece = Text(text, message_id)

    assert TextUpdateEncoder(SESSION).line(text, message_id) == the_long_way(piece)


def test_each_piece_is_told_under_the_id_of_its_message():
    lines = TextUpdateEncoder(SESSION)
    pieces = [Text("a", "one"), Text("b", "one"), Text("c", "two"), Text("d", "one"), Text("e", None)]

    told = [lines.line(piece.text, piece.message_id) for piece in pieces]

    assert told == [the_long_way(piece) for piece in pieces]
