// Where somebody enters an API key.
import { find } from "./elements.js";
import { key, whenKeyNeeded } from "./service.js";

let settle = () => {};

function open(message) {
  const dialog = find("key-dialog");
  find("key-message").textContent = message;
  find("key-input").value = "";
  find("key-forget").hidden = key.get() === null;
  if (!dialog.open) dialog.showModal();
  find("key-input").focus();
  return new Promise((resolve) => {
    settle = resolve;
  });
}

// `changed` runs after a key was given or forgotten by hand, so that the page can ask again with it.
export function setUpKey(needed, changed) {
  const dialog = find("key-dialog");
  const done = (given) => {
    dialog.close();
    settle(given);
  };
  find("key-form").addEventListener("submit", (event) => {
    event.preventDefault();
    key.set(find("key-input").value.trim());
    done(true);
  });
  find("key-forget").addEventListener("click", () => {
    key.set(null);
    done(false);
  });
  find("key-cancel").addEventListener("click", () => done(false));
  dialog.addEventListener("cancel", () => settle(false));
  find("key-button").hidden = !needed;
  find("key-button").addEventListener("click", async () => {
    const known = key.get() === null ? "This service answers to a key." : "A key is kept in this tab.";
    if (await open(known)) changed();
  });
  whenKeyNeeded(open);
}
