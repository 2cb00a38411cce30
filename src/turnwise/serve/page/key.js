// The dialog for the API key.
import { byId } from "./elements.js";
import { key, onKeyNeeded } from "./service.js";

let resolvePrompt = () => {};

function open(message) {
  const dialog = byId("key-dialog");
  byId("key-message").textContent = message;
  byId("key-input").value = "";
  byId("key-forget").hidden = key.get() === null;
  if (!dialog.open) dialog.showModal();
  byId("key-input").focus();
  return new Promise((resolve) => {
    resolvePrompt = resolve;
  });
}

// `onChange` runs after the key was set or removed with the button, so that the page can repeat its requests.
export function setUpKey(needed, onChange) {
  const dialog = byId("key-dialog");
  const done = (given) => {
    dialog.close();
    resolvePrompt(given);
  };
  byId("key-form").addEventListener("submit", (event) => {
    event.preventDefault();
    key.set(byId("key-input").value.trim());
    done(true);
  });
  byId("key-forget").addEventListener("click", () => {
    key.set(null);
    done(false);
  });
  byId("key-cancel").addEventListener("click", () => done(false));
  dialog.addEventListener("cancel", () => resolvePrompt(false));
  byId("key-button").hidden = !needed;
  byId("key-button").addEventListener("click", async () => {
    const message = key.get() === null ? "This service requires an API key." : "A key is stored in this tab.";
    if (await open(message)) onChange();
  });
  onKeyNeeded(open);
}
