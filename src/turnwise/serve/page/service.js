// Requests to the service that serves this page.

const KEY = "turnwise-key";

// An error response, or no response (`status` 0).
class ServiceError extends Error {
  constructor(message, status = 0, code = null, wait = null) {
    super(message);
    this.status = status;
    this.code = code;
    this.wait = wait;
  }
}

let memory = null; // used where the browser forbids storage

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

let openPrompt = async () => false;
let pendingPrompt = null;

// `prompt(message)` lets the user enter a key and resolves to whether they did.
export function onKeyNeeded(prompt) {
  openPrompt = prompt;
}

// Several requests may be rejected at once, but there is one prompt.
function promptForKey(message) {
  pendingPrompt ??= openPrompt(message).finally(() => {
    pendingPrompt = null;
  });
  return pendingPrompt;
}

function headers(body) {
  const sent = {};
  if (body !== undefined) sent["Content-Type"] = "application/json";
  if (key.get()) sent.Authorization = `Bearer ${key.get()}`;
  return sent;
}

// Messages of the service as sentences.
function sentence(text) {
  const capitalised = text.charAt(0).toUpperCase() + text.slice(1);
  return /[.!?…]$/u.test(capitalised) ? capitalised : `${capitalised}.`;
}

async function readError(response) {
  let error = null;
  try {
    error = (await response.json()).error;
  } catch {
    // a proxy may send something other than JSON
  }
  const wait = Number(response.headers.get("Retry-After")) || null;
  const message = error?.message ?? `the service returned status ${response.status} without a message`;
  return new ServiceError(sentence(message), response.status, error?.code ?? null, wait);
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
    throw new ServiceError("The service does not respond. Check that it is running and can be reached.");
  }
}

async function sendWithKey(path, options) {
  const used = key.get();
  const response = await send(path, options);
  if (response.status !== 401) return response;
  const rejection = await readError(response);
  const message = used ? "This key is not valid: it may be mistyped or revoked." : "This service requires an API key.";
  // another request may have prompted for the key meanwhile
  if (key.get() !== used || (await promptForKey(message))) return sendWithKey(path, options);
  throw rejection;
}

// Resolves to the JSON response. With a `body` it is a POST request, without one a GET request. Paths are relative, so that the
// service may run below another path.
export async function request(path, options = {}) {
  const response = await sendWithKey(path, options);
  if (!response.ok) throw await readError(response);
  return response.json();
}

// Resolves to the response as a blob.
export async function fetchFile(path) {
  const response = await sendWithKey(path, {});
  if (!response.ok) throw await readError(response);
  return response.blob();
}

// Runs that replace each other: a new one aborts the previous one.
export class LatestRun {
  #controller = null;

  start() {
    this.#controller?.abort();
    this.#controller = new AbortController();
    return this.#controller.signal;
  }
}
