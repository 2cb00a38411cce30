// Requests to the service that served this page, and to no other.

const KEY = "turnwise-key";

// What the service answered, or that it did not; `status` is 0 where there was no answer.
class ServiceError extends Error {
  constructor(message, status = 0, code = null, wait = null) {
    super(message);
    this.status = status;
    this.code = code;
    this.wait = wait;
  }
}

let memory = null; // where the browser forbids storage the key lasts as long as the page

export const key = {
  get() {
    try {
      return sessionStorage.getItem(KEY) ?? memory;
    } catch {
      return memory;
    }
  },
  set(value) {
    memory = value;
    try {
      if (value === null) sessionStorage.removeItem(KEY);
      else sessionStorage.setItem(KEY, value);
    } catch {
      // as above
    }
  },
};

let askForKey = async () => false;
let asking = null;

// `ask(message)` lets somebody enter a key, and says whether they did.
export function whenKeyNeeded(ask) {
  askForKey = ask;
}

// Several requests may be refused at once; the key is asked for once.
function keyGiven(message) {
  asking ??= askForKey(message).finally(() => {
    asking = null;
  });
  return asking;
}

function headers(body) {
  const sent = {};
  if (body !== undefined) sent["Content-Type"] = "application/json";
  if (key.get()) sent.Authorization = `Bearer ${key.get()}`;
  return sent;
}

// Errors of the service are written for programs' logs too; here they stand as sentences.
function sentence(text) {
  const begun = text.charAt(0).toUpperCase() + text.slice(1);
  return /[.!?…]$/u.test(begun) ? begun : `${begun}.`;
}

async function failure(response) {
  let told = null;
  try {
    told = (await response.json()).error;
  } catch {
    // whatever stands between may answer with something that is not JSON: the status has to do
  }
  const wait = Number(response.headers.get("Retry-After")) || null;
  const message = told?.message ?? `the service answered with status ${response.status} and no explanation`;
  return new ServiceError(sentence(message), response.status, told?.code ?? null, wait);
}

async function send(path, { body, signal }) {
  try {
    return await fetch(path, {
      method: body === undefined ? "GET" : "POST",
      headers: headers(body),
      body: body === undefined ? undefined : JSON.stringify(body),
      signal,
    });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new ServiceError("The service does not answer. Is it still running, and can this machine reach it?");
  }
}

async function answered(path, options) {
  const used = key.get();
  const response = await send(path, options);
  if (response.status !== 401) return response;
  const refused = await failure(response);
  // another request may have asked for the key meanwhile
  const known = used ? "The service does not know this key: it may be mistyped, or withdrawn." : "This service answers to a key.";
  if (key.get() !== used || (await keyGiven(known))) return answered(path, options);
  throw refused;
}

// The answer as JSON. With a `body` it is a POST, without one a GET. A path has no slash at its start, so that the service
// may stand below another address.
export async function ask(path, options = {}) {
  const response = await answered(path, options);
  if (!response.ok) throw await failure(response);
  return response.json();
}

// The answer as a file to save.
export async function fetchFile(path) {
  const response = await answered(path, {});
  if (!response.ok) throw await failure(response);
  return response.blob();
}

// Runs that replace each other: a new one stops the one before, whose answers are then of no interest.
export class Latest {
  #controller = null;

  start() {
    this.#controller?.abort();
    this.#controller = new AbortController();
    return this.#controller.signal;
  }
}
