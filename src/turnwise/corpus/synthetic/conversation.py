"""A conversation of the sample world, made by its random generator, which may contradict one of its statements."""

from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from random import Random

from turnwise.core.dialogue import OUT_OF_SCOPE, SYSTEM, USER, Turn
from turnwise.corpus.synthetic.world import (
    Filling,
    Fillings,
    Intent,
    LineBuilder,
    Phrasing,
    draw_values,
    load_world,
    own_words,
    pick,
    words,
)

#: Contradictions: a statement of the system misses the question, or conflicts with an earlier turn.
CONTRADICTIONS = ("query", "history")

#: How often a short turn ('yes', 'thanks') refers to the request; keeps repetition at the level of real corpora.
_ELABORATE_PROBABILITY = 0.65
_MAX_TURNS = 11  # no new request is made after this many turns


@dataclass(slots=True)
class _Goal:
    """The current request of the user: an intent and its values, some of which the system does not know yet."""

    intent: Intent
    values: dict[str, str]
    known: list[str] = field(default_factory=list)
    reached: bool = False
    stated: Phrasing | None = None

    def missing(self) -> list[str]:
        return [slot for slot in self.intent.slots if slot not in self.known]


class SampleConversation:
    """A conversation, generated completely on construction, with the phrasings of a split for the user.

    With a probe, one of `CONTRADICTIONS`, the first request leads to a statement that can be contradicted in this way,
    at the index `statement`; `contradict` says whether it is.
    """

    def __init__(self, rng: Random, split: str, probe: str | None = None, contradict: bool = False) -> None:
        self.turns: list[Turn] = []
        self.split = split
        self.statement: int | None = None
        self.contradiction = probe if contradict else None
        world = self._world = load_world()
        self._slot_types = world.slot_types
        self._rng = rng
        # the probed statement is the result itself, or follows it (an answer to a side question, a recapitulation)
        self._probe_result = probe if rng.random() < 0.5 else None
        self._probe_after = probe if self._probe_result is None else None
        self._domain = world.domains[pick(rng, tuple(world.domains))]
        self._goal: _Goal | None = None
        self._run()

    def _chance(self, probability: float) -> bool:
        return self._rng.random() < probability

    # ---- utterances

    def _say(
        self, speaker: str, acts: Iterable[str], parts: Iterable[tuple[Phrasing, Fillings]], intent: str | None = None
    ) -> None:
        line = LineBuilder(self._rng, noisy=speaker == USER and self._rng.random() < 0.3)
        for phrasing, fillings in parts:
            line.add(phrasing, fillings)
        self.turns.append(Turn(speaker, line.text(), intent, tuple(acts), tuple(line.slots)))

    def _user(self, name: str, act: str, fillings: Fillings | None = None) -> None:
        self._say(USER, (act,), [(pick(self._rng, self._world.user[name]), fillings or {})])

    def _system(self, names: str, acts: str, fillings: Fillings) -> None:
        """Let the system say one phrase of each name, with one act each."""
        self._say(SYSTEM, acts.split(), [self._phrase(name, fillings) for name in names.split()])

    def _phrase(self, name: str, fillings: Fillings) -> tuple[Phrasing, Fillings]:
        return pick(self._rng, self._world.system[name]), fillings

    def _topic(self) -> Fillings:
        noun = words(self._domain.noun)
        return {"noun": noun, "do": words(self._goal.intent.do)} if self._goal else {"noun": noun}

    def _react(self, name: str) -> None:
        """Let the user affirm, thank or end, in a few words or with reference to the request."""
        goal = self._goal
        if goal is not None and self._chance(_ELABORATE_PROBABILITY) and (goal.reached or name == "affirm"):
            self._user(f"{name}_do", name, {"noun": own_words(self._domain.noun), "do": own_words(goal.intent.do)})
        else:
            self._user(name, name)

    # ---- course of a conversation

    def _run(self) -> None:
        number = self._rng.random()
        if number < 0.18:
            self._user("greet", "greet")
        if greeted := number < 0.38:
            self._system("greet", "greet", self._topic())
        if self._chance(0.04):
            self._talk_small()
        if self._chance(0.05):
            self._ask_out_of_scope()
        number = self._rng.random()
        goals = 1 if number < 0.5 else 2 if number < 0.9 else 3
        for position in range(goals):
            if position == 0 or len(self.turns) < _MAX_TURNS:
                self._pursue(first=position == 0, greeted=greeted, last=position == goals - 1)
        self._close()

    def _talk_small(self) -> None:
        user, system = pick(self._rng, self._world.small_talk)
        self._say(USER, ("small_talk",), [(pick(self._rng, user), {})])
        self._say(SYSTEM, ("small_talk",), [(pick(self._rng, system), self._topic())])

    def _ask_out_of_scope(self) -> None:
        request = pick(self._rng, self._world.out_of_scope[self.split])
        fillings = draw_values(self._rng, request.phrasing.placeholders)
        acts = ("request", *[f"inform({slot})" for slot in request.phrasing.placeholders])
        self._say(USER, acts, [(request.phrasing, fillings)], OUT_OF_SCOPE)
        self._system("cannot_help", "decline", {**self._topic(), "topic": words(request.topic)})

    def _pursue(self, first: bool, greeted: bool, last: bool) -> None:
        """Play one request from the question to the outcome."""
        rng = self._rng
        before = self._goal
        moved = before is not None and self._chance(0.35)
        if moved:
            self._domain = self._world.domains[pick(rng, self._domain.related)]
        intent = self._pick_intent(None if before is None else before.intent)
        goal = self._goal = _Goal(intent, self._values(intent, before))
        vague = self._request(goal, "next" if not first else "" if greeted else "opener")
        opening = [self._phrase("switch", self._topic())] if moved and self._chance(0.5) else []
        acts = ["switch"] if opening else []
        if not opening and self._chance(0.25 if vague else 0.05):
            self._clarify(goal, vague)
        had_missing = bool(goal.missing())
        self._fill_slots(goal, opening, acts)
        if self._confirm(goal, always=not had_missing) and self._negotiate(goal):
            self._conclude(goal, last)

    def _pick_intent(self, other_than: Intent | None) -> Intent:
        while (intent := pick(self._rng, self._domain.intents)) is other_than:
            pass
        return intent

    def _values(self, intent: Intent, before: _Goal | None) -> dict[str, str]:
        """Return the values of a request; those of the last request are mostly kept, and no two slots share a value."""
        values: dict[str, str] = {}
        for slot in intent.slots:
            if before is not None and slot in before.values and self._chance(0.6):
                values[slot] = before.values[slot]
            else:
                values[slot] = self._draw_other(slot, values.values())
        return values

    def _request(self, goal: _Goal, lead: str) -> bool:
        """Let the user make the request; return whether it names no values."""
        phrasing = pick(self._rng, goal.intent.phrasings[self.split])
        fillings = draw_values(self._rng, [slot for slot in phrasing.placeholders if slot not in goal.values])
        fillings.update((slot, (slot, "", value)) for slot, value in goal.values.items())
        parts: list[tuple[Phrasing, Fillings]] = [(phrasing, fillings)]
        # vague requests mostly begin with an opener
        if lead and self._chance(0.35 if phrasing.placeholders else 0.7):
            parts.insert(0, (pick(self._rng, self._world.user[lead]), {}))
        acts = ("request", *[f"inform({placeholder})" for placeholder in phrasing.placeholders])
        self._say(USER, acts, parts, goal.intent.name)
        goal.known = [slot for slot in goal.intent.slots if slot in phrasing.placeholders or slot in goal.known]
        return not phrasing.placeholders

    def _clarify(self, goal: _Goal, vague: bool) -> None:
        """Let the system ask which request is meant."""
        number = self._rng.random()
        if not vague or number < 0.35:
            self._system("unsure", "verify", self._topic())
            self._react("affirm")
            return
        # similar intents are adjacent in the data files
        intents = self._domain.intents
        other = intents[(intents.index(goal.intent) + pick(self._rng, (-1, 1))) % len(intents)]
        goal_is_first = self._chance(0.5)
        pair = (goal.intent, other) if goal_is_first else (other, goal.intent)
        self._system("clarify", "clarify", {"first": words(pair[0].do), "second": words(pair[1].do)})
        if number < 0.7:
            self._user("choose_first" if goal_is_first else "choose_second", "select")
        else:
            self._request(goal, "")

    def _fill_slots(self, goal: _Goal, opening: list[tuple[Phrasing, Fillings]], acts: list[str]) -> None:
        """Let the system ask for the missing slots one by one."""
        slot_before: str | None = None
        while missing := goal.missing():
            slot = missing[0]
            kind = self._slot_types[slot]
            parts, part_acts, opening, acts = opening, acts, [], []
            if slot_before is None:
                if not parts and self._chance(0.9):
                    parts, part_acts = [self._phrase("help", self._topic())], ["help"]
            elif self._chance(0.85) and not self._slot_types[slot_before].clause:
                parts = [self._phrase("echo", self._about(slot_before, goal.values[slot_before]))]
                part_acts = [f"acknowledge({slot_before})"]
            self._say(SYSTEM, (*part_acts, f"request({slot})"), [*parts, (pick(self._rng, kind.ask), {})])
            if slot_before is not None and self._chance(0.07):
                self._correct(goal, slot_before, "correct", slot)
            self._interrupt(slot)
            self._answer(goal, slot, missing)
            slot_before = slot

    def _about(self, slot: str, value: str, placeholder: str = "value") -> dict[str, Filling]:
        kind = self._slot_types[slot]
        return {placeholder: (slot, kind.article, value), "label": words(kind.label)}

    def _interrupt(self, slot: str) -> None:
        """Let the user ask back or need a moment before answering."""
        number = self._rng.random()
        label = self._slot_types[slot].label
        for threshold, user, system, act in (
            (0.03, "ask_why", "explain", f"explain({slot})"),
            (0.055, "ask_repeat", "rephrase", f"rephrase({slot})"),
            (0.085, "wait", "patience", "wait"),
        ):
            if number < threshold:
                self._user(user, user, {"label": own_words(label)})
                self._system(system, act, {**self._topic(), "label": words(label)})
                return

    def _answer(self, goal: _Goal, slot: str, missing: list[str]) -> None:
        kinds = self._slot_types
        kind, value = kinds[slot], goal.values[slot]
        goal.known.append(slot)
        if len(missing) > 1 and self._chance(0.12) and not (kind.clause or kinds[missing[1]].clause):
            second = missing[1]
            fillings: Fillings = {
                "value": (slot, kind.article, value),
                "value_two": (second, kinds[second].article, goal.values[second]),
                "label_two": own_words(kinds[second].label),
            }
            goal.known.append(second)
            phrasing = pick(self._rng, self._world.user["answer_two"])
            self._say(USER, (f"inform({slot})", f"inform({second})"), [(phrasing, fillings)])
        elif kind.clause or self._chance(0.45):
            self._say(USER, (f"inform({slot})",), [(pick(self._rng, kind.say), {"value": (slot, "", value)})])
        else:
            self._user("answer", f"inform({slot})", {"value": (slot, kind.article, value)})

    def _draw_other(self, slot: str, values: Collection[str]) -> str:
        """Return a random value of a slot that is none of these."""
        while (other := self._slot_types[slot].draw(self._rng)) in values:
            pass
        return other

    def _correct(self, goal: _Goal, slot: str, phrase: str, pending: str | None = None) -> None:
        """Let the user correct a value; the system repeats the pending question."""
        kind = self._slot_types[slot]
        if kind.clause:
            return
        old = goal.values[slot]
        goal.values[slot] = self._draw_other(slot, [old])
        fillings = {**self._about(slot, goal.values[slot]), **self._about(slot, old, "old")}
        self._user(phrase, f"correct({slot})", {**fillings, "label": own_words(kind.label)})
        corrected = self._phrase("corrected", fillings)
        if pending is None:
            closing, act = self._phrase("confirm_closing", {}), "confirm"
        else:
            closing, act = (pick(self._rng, self._slot_types[pending].ask), {}), f"request({pending})"
        self._say(SYSTEM, (f"correct({slot})", act), [corrected, closing])

    def _confirm(self, goal: _Goal, always: bool) -> bool:
        """Let the system repeat what it will do; return whether the user agrees in the end."""
        if not goal.intent.confirm or not (always or self._chance(0.8)):
            return True
        phrasing = pick(self._rng, goal.intent.confirm)
        parts = [(phrasing, self._filled(goal, phrasing)), self._phrase("confirm_closing", {})]
        if self._chance(0.6):
            parts.insert(0, self._phrase("confirm_opening", {}))
        acts = [f"confirm({slot})" for slot in phrasing.placeholders]
        self._say(SYSTEM, acts, parts)
        number = self._rng.random()
        if number < 0.06 and self._probe_result is None and self._probe_after is None:
            self._user("cancel", "cancel")
            self._system("cancelled more", "cancel ask_more", self._topic())
            return False
        if number < 0.09:
            slot = pick(self._rng, goal.intent.slots)
            self._user("deny", "deny")
            self._system(
                "rephrase", f"request({slot})", {**self._topic(), "label": words(self._slot_types[slot].label)}
            )
            goal.values[slot] = self._draw_other(slot, [goal.values[slot]])
            self._answer(goal, slot, [slot])
            self._say(SYSTEM, acts, [(phrasing, self._filled(goal, phrasing)), self._phrase("confirm_closing", {})])
        elif number < 0.2:
            self._correct(goal, pick(self._rng, goal.intent.slots), "correct_after_no")
        slot = pick(self._rng, goal.intent.slots)
        if self._slot_types[slot].clause or self._chance(0.6):
            self._react("affirm")
        else:
            about = {**self._about(slot, goal.values[slot]), "label": own_words(self._slot_types[slot].label)}
            self._user("affirm_value", "affirm", about)
        return True

    def _filled(self, goal: _Goal, phrasing: Phrasing) -> dict[str, Filling]:
        """Return the values for a phrasing; those that only the system knows are drawn once and remembered."""
        values = goal.values
        for placeholder in phrasing.placeholders:
            if placeholder not in values:
                values[placeholder] = self._slot_types[placeholder].draw(self._rng)
        return {placeholder: (placeholder, "", values[placeholder]) for placeholder in phrasing.placeholders}

    def _negotiate(self, goal: _Goal) -> bool:
        """Let a requested value be unavailable, or the search take a while; return whether there will be an outcome."""
        slot = goal.intent.flexible
        probed = self._probe_result is not None or self._probe_after is not None
        if slot is not None and self._chance(0.2):
            requested = goal.values[slot]
            alternative = self._draw_other(slot, [requested])
            values = self._about(slot, requested) | self._about(slot, alternative, "alternative")
            self._system("not_possible offer", f"unavailable({slot}) offer({slot})", {**self._topic(), **values})
            if self._chance(0.65):
                goal.values[slot] = alternative
                self._user("accept", "accept", self._about(slot, alternative))
            else:
                goal.values[slot] = self._draw_other(slot, [alternative])
                self._user("reject", f"reject({slot})", self._about(slot, goal.values[slot]))
        elif self._chance(0.1):
            self._system("hold", "hold", self._topic())
            self._user("acknowledge", "acknowledge")
        if not probed and self._chance(0.05):
            self._system("refuse", "failure", {**self._topic(), **draw_values(self._rng, ["reference"])})
            self._user("acknowledge", "acknowledge")
            self._system("more", "ask_more", self._topic())
            return False
        return True

    def _conclude(self, goal: _Goal, last: bool) -> None:
        """State the outcome and let the user react."""
        kind, self._probe_result = self._probe_result, None
        goal.reached = True
        parts, slots = self._outcome(goal, kind)
        if self._chance(0.35):
            parts.insert(0, self._phrase("result_opening" if goal.intent.confirm else "answer_opening", {}))
        acts = [f"inform({slot})" for slot in slots]
        if kind is None and self._probe_after is None and self._chance(0.15):
            parts.append(self._phrase("more", self._topic()))
            acts.append("ask_more")
        if kind is not None:
            self.statement = len(self.turns)
        self._say(SYSTEM, acts, parts)
        after, self._probe_after = self._probe_after, None
        if after == "query" or (acts[-1] != "ask_more" and self._chance(0.12)):
            self._ask_detail(goal, probed=after == "query")
        if after == "history" or self._chance(0.04 if last else 0.0):
            self._recapitulate(goal, probed=after == "history")
        if acts[-1] == "ask_more" or (not last and self._chance(0.3)):
            return
        self._react("thank")
        number = self._rng.random()
        welcome = self._phrase("welcome_done" if self._chance(_ELABORATE_PROBABILITY) else "welcome", self._topic())
        if number < 0.55:
            self._say(SYSTEM, ("welcome", "ask_more"), [welcome, self._phrase("more", self._topic())])
        elif number < 0.7:
            self._system("more", "ask_more", self._topic())
        else:
            self._say(SYSTEM, ("welcome",), [welcome])

    def _outcome(self, goal: _Goal, kind: str | None) -> tuple[list[tuple[Phrasing, Fillings]], tuple[str, ...]]:
        """Return the statement of the outcome; a wrong one if a contradiction of this kind is planned."""
        phrasing = goal.stated = pick(self._rng, goal.intent.result)
        fillings = self._filled(goal, phrasing)
        if kind == "query" and self.contradiction:
            # the answer to another request; shared values stay, so that values alone do not reveal the contradiction
            other = self._pick_intent(goal.intent)
            phrasing = pick(self._rng, other.result)
            fillings = self._filled(_Goal(other, dict(goal.values)), phrasing)
        elif kind == "history" and self.contradiction:
            self._falsify(fillings, [slot for slot in phrasing.placeholders if slot in goal.intent.slots])
        return [(phrasing, fillings)], phrasing.placeholders

    def _falsify(self, fillings: dict[str, Filling], slots: list[str]) -> None:
        slot = pick(self._rng, slots)
        fillings[slot] = (slot, "", self._draw_other(slot, [fillings[slot][2]]))

    def _ask_detail(self, goal: _Goal, probed: bool) -> None:
        fitting = [detail for detail in self._domain.details if goal.intent.name in detail.about]
        if not fitting and not probed:
            return
        detail = pick(self._rng, fitting or self._domain.details)
        self._say(USER, ("question",), [(pick(self._rng, detail.questions[self.split]), {})])
        answers = detail.answers
        if probed:
            self.statement = len(self.turns)
            if self.contradiction:
                answers = pick(self._rng, [other for other in self._domain.details if other is not detail]).answers
        self._say(SYSTEM, ("answer",), [(pick(self._rng, answers), {})])

    def _recapitulate(self, goal: _Goal, probed: bool) -> None:
        self._react("thank")
        mentioned = [slot.name for turn in self.turns if turn.speaker == SYSTEM for slot in turn.slots]
        # in other words than before, unless the system looked something up: other words would be another result
        others = [result for result in goal.intent.result if result is not goal.stated]
        phrasing = pick(self._rng, others) if goal.intent.confirm or goal.stated is None else goal.stated
        fillings = self._filled(goal, phrasing)
        if probed:
            self.statement = len(self.turns)
            if self.contradiction:
                known = [slot for slot in phrasing.placeholders if slot in goal.intent.slots or slot in mentioned]
                self._falsify(fillings, known)
        acts = ("recap", *[f"inform({slot})" for slot in phrasing.placeholders])
        self._say(SYSTEM, acts, [self._phrase("recap", {}), (phrasing, fillings)])

    def _close(self) -> None:
        if self._chance(0.03):
            self._ask_out_of_scope()
        if self._chance(0.02):
            self._talk_small()
        if "ask_more" in self.turns[-1].acts:
            self._react("nothing_more")
            says_bye = len(self.turns) < 6 or self._chance(0.75)
        elif says_bye := len(self.turns) < 6 or self._chance(0.6):
            self._user("bye", "bye")
        if says_bye:
            reached = self._goal is not None and self._goal.reached
            self._system("bye_do" if reached and self._chance(_ELABORATE_PROBABILITY) else "bye", "bye", self._topic())
