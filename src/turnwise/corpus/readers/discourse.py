"""Topics of Discourse forums, as the API returns them: `/t/ID.json`."""

from typing import Any

from turnwise.corpus.readers.shared.chat_exports import DELETED, NO_TEXT, PAUSE, ChatExport
from turnwise.corpus.readers.shared.fields import optional, require, require_id, require_object, require_time
from turnwise.corpus.readers.shared.html_text import html_to_text
from turnwise.corpus.readers.shared.speakers import Speakers
from turnwise.corpus.source.corpus_source import CorpusSource, Dialogues

_SMALL_ACTION, _WHISPER = 3, 4  # types of posts; 1 is an ordinary one, 2 one of a moderator

_MISSING = "posts that are not in the files (a topic has 20 per page)"


def read(source: CorpusSource, *, speakers: Speakers = None) -> Dialogues:
    """Read topics `{id, post_stream: {posts: [{topic_id, username, cooked, created_at}]}}`, or pages of their posts.

    A topic is a dialogue; replies to single posts stay in place. Quotes of other posts and previews of links are
    removed. Actions of moderators without a text are left out, and so are whispers; hidden and deleted posts are left
    out too, and a dialogue is split there. `speakers` maps user names.
    """
    return _DiscourseTopics(source, speakers, PAUSE).read()


class _DiscourseTopics(ChatExport):
    opened = ("post_stream", "posts", "latest_posts")
    known = ("posts", "latest_posts")
    expected = 'no posts: expected a topic of Discourse\'s API, {"post_stream": {"posts": […]}}'

    def read(self) -> Dialogues:
        self._posts: set[str] = set()  # ids of those in the files
        self._listed: set[str] = set()  # ids of those that the topics have
        yield from super().read()
        if missing := len(self._listed - self._posts):
            self.source.facts[_MISSING] = missing

    def read_member(self, key: str, value: Any) -> None:
        if key in ("posts", "latest_posts"):
            self._add_post(require_object(value, "the post"))
        elif key == "stream":
            self._listed.update(map(str, require({"stream": value}, "stream", list)))

    def _add_post(self, post: dict[str, Any]) -> None:
        identity, conversation = require_id(post, "id"), self.add_thread(require_id(post, "topic_id"))
        self._posts.add(identity)
        time, kind, action = require_time(post, "created_at"), post.get("post_type"), optional(post, "action_code", str)
        if kind == _SMALL_ACTION or action:
            self.skip_event(action.replace(".", " "))
        elif kind == _WHISPER:
            self.source.by_design["whispers of the staff"] += 1
        elif post.get("deleted_at") or post.get("user_deleted"):
            self.leave_out(conversation, time, DELETED)
        elif post.get("hidden"):
            self.leave_out(conversation, time, "hidden posts")
        else:
            text = html_to_text(require(post, "cooked", str))
            self.add_text(conversation, time, require_id(post, "username"), text, NO_TEXT, key=identity)
