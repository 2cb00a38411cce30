// A pasted conversation as turns.

const USERS = ["user", "customer", "client", "caller", "visitor", "human"];
const AGENTS = ["agent", "system", "assistant", "bot", "operator", "support"];
const SPOKEN = new RegExp(`^\\s*(${[...USERS, ...AGENTS].join("|")})\\s*:\\s*(.*)$`, "iu");

const other = (speaker) => (speaker === "user" ? "system" : "user");

function named(line) {
  const found = SPOKEN.exec(line);
  if (found === null) return null;
  return { speaker: USERS.includes(found[1].toLowerCase()) ? "user" : "system", text: found[2].trim() };
}

// Lines that name a speaker begin a turn, those that do not go on with it; lines before the first that does are one turn of the other's.
function byName(lines) {
  const turns = [];
  for (const line of lines) {
    const turn = named(line);
    if (turn !== null) turns.push(turn);
    else if (turns.length) turns.at(-1).text = `${turns.at(-1).text}\n${line.trim()}`.trim();
    else turns.push({ speaker: null, text: line.trim() });
  }
  if (turns[0].speaker === null) {
    const first = turns.findIndex((turn) => turn.speaker !== null);
    turns[0].speaker = other(turns[first].speaker);
  }
  return turns.filter((turn) => turn.text);
}

// Turns of "user" and "system", newest last. Where no line says who speaks, speakers alternate and the newest line is the user's.
export function parse(text) {
  const lines = text.split(/\r?\n/u).filter((line) => line.trim());
  if (lines.some((line) => named(line) !== null)) return byName(lines);
  return lines.map((line, place) => ({ speaker: (lines.length - 1 - place) % 2 ? "system" : "user", text: line.trim() }));
}

// The same turns as text that `parse` reads back.
export function written(turns) {
  return turns.map(({ speaker, text }) => `${speaker === "user" ? "user" : "agent"}: ${text}`).join("\n");
}

export const swapped = (turns) => turns.map(({ speaker, text }) => ({ speaker: other(speaker), text }));
