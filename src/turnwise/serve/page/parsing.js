// Parses a pasted conversation into turns.

const USERS = ["user", "customer", "client", "caller", "visitor", "human"];
const AGENTS = ["agent", "system", "assistant", "bot", "operator", "support"];
const SPEAKER_LINE = new RegExp(`^\\s*(${[...USERS, ...AGENTS].join("|")})\\s*:\\s*(.*)$`, "iu");

const other = (speaker) => (speaker === "user" ? "system" : "user");

function parseSpeakerLine(line) {
  const match = SPEAKER_LINE.exec(line);
  if (match === null) return null;
  return { speaker: USERS.includes(match[1].toLowerCase()) ? "user" : "system", text: match[2].trim() };
}

// A line with a speaker starts a turn, other lines continue it; lines before the first speaker are one turn of the other speaker.
function parseSpeakerLines(lines) {
  const turns = [];
  for (const line of lines) {
    const turn = parseSpeakerLine(line);
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

// Returns turns of "user" and "system", newest last. Without any speaker names, speakers alternate and the last line is the user's.
export function parseTurns(text) {
  const lines = text.split(/\r?\n/u).filter((line) => line.trim());
  if (lines.some((line) => parseSpeakerLine(line) !== null)) return parseSpeakerLines(lines);
  return lines.map((line, index) => ({ speaker: (lines.length - 1 - index) % 2 ? "system" : "user", text: line.trim() }));
}

// Returns turns as text that `parseTurns` reads.
export function formatTurns(turns) {
  return turns.map(({ speaker, text }) => `${speaker === "user" ? "user" : "agent"}: ${text}`).join("\n");
}

export const swapSpeakers = (turns) => turns.map(({ speaker, text }) => ({ speaker: other(speaker), text }));
