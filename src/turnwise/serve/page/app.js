// Starts the page: asks the service what it has, and shows one view at a time, by the address after #.
import { ConversationView } from "./conversation.js";
import { element, find, said } from "./elements.js";
import { setUpKey } from "./key.js";
import { MapView } from "./map-view.js";
import { busy, failed } from "./notices.js";
import { ReportView } from "./report.js";
import { ask } from "./service.js";
import { UtteranceView } from "./utterance.js";

const TITLES = { utterance: "Utterance", conversation: "Conversation", map: "Map", report: "Report" };
let views = null;
let shown = null;

const wanted = () => (location.hash.slice(1) in TITLES ? location.hash.slice(1) : null);

function show(name) {
  for (const each of Object.keys(TITLES)) {
    find(`view-${each}`).hidden = each !== name;
    const link = document.querySelector(`nav a[href="#${each}"]`);
    if (each === name) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  document.title = `${TITLES[name]} · turnwise`;
  document.body.dataset.view = name;
  shown = name;
  views[name].show();
}

// A link within the page, such as the one to its content, changes the address too, and shows nothing else.
function follow() {
  const name = wanted();
  if (name === null || name === shown) return;
  show(name);
  find(`${name}-heading`).focus();
}

function footer(about) {
  find("about").replaceChildren(
    element("span", {}, "Model ", element("b", {}, said(about.model))),
    element("span", {}, `${about.size} numbers a vector`),
    element("span", {}, `turnwise ${about.version}`),
    element("a", { href: "openapi.json" }, "OpenAPI"),
  );
}

// A classifier was fitted on the map, and the service uses it: what it can do has changed.
async function refitted(about) {
  Object.assign(about, await ask("about"));
  views.utterance.intentsChanged();
}

async function start() {
  try {
    await ask("ready");
    const about = await ask("about");
    find("trouble").replaceChildren();
    setUpKey(about.needs_key, () => views[shown].show());
    footer(about);
    views = {
      utterance: new UtteranceView(about),
      conversation: new ConversationView(about),
      map: new MapView(about, () => refitted(about)),
      report: new ReportView(about),
    };
    show(wanted() ?? "utterance");
    addEventListener("hashchange", follow);
  } catch (error) {
    // models take a while to load, and this page is there before them
    const loading = error.code === "loading";
    find("trouble").replaceChildren(loading ? busy("The service is loading its models…") : failed(error, start));
    if (loading) setTimeout(start, 1000 * (error.wait ?? 2));
  }
}

start();
