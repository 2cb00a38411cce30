// Starts the page: reads the features of the service, and shows the view named in the URL fragment.
import { ClustersView } from "./clusters.js";
import { ConversationView } from "./conversation.js";
import { byId, element, textSpan } from "./elements.js";
import { setUpIntroduction } from "./introduction.js";
import { setUpKey } from "./key.js";
import { MapView } from "./map-view.js";
import { busyNotice, errorNotice } from "./notices.js";
import { ReportView } from "./report.js";
import { request } from "./service.js";
import { UtteranceView } from "./utterance.js";

const TITLES = { utterance: "Utterance", conversation: "Conversation", clusters: "Clusters", map: "Map", report: "Report" };
let views = null;
let shown = null;

const viewInUrl = () => (location.hash.slice(1) in TITLES ? location.hash.slice(1) : null);

function show(name) {
  for (const each of Object.keys(TITLES)) {
    byId(`view-${each}`).hidden = each !== name;
    const link = document.querySelector(`nav a[href="#${each}"]`);
    if (each === name) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  document.title = `${TITLES[name]} · turnwise`;
  document.body.dataset.view = name;
  shown = name;
  views[name].show();
}

// Other links within the page, such as the skip link, change the fragment as well but not the view.
function onHashChange() {
  const name = viewInUrl();
  if (name === null || name === shown) return;
  show(name);
  byId(`${name}-heading`).focus();
}

// Shows a view from a button of another one; `then(view)` runs afterwards.
function showFromElsewhere(name, then = () => {}) {
  if (shown !== name) {
    history.pushState(null, "", `#${name}`);
    show(name);
  }
  byId(`${name}-heading`).focus();
  then(views[name]);
}

function footer(about) {
  byId("about").replaceChildren(
    element("span", {}, "Model ", element("b", {}, textSpan(about.model))),
    element("span", {}, `${about.size} dimensions`),
    element("span", {}, `turnwise ${about.version}`),
    element("a", { href: "openapi.json" }, "OpenAPI"),
  );
}

// A classifier was fitted on the map and is used now: the features of the service have changed.
async function onFitted(about) {
  Object.assign(about, await request("about"));
  views.utterance.intentsChanged();
}

async function start() {
  try {
    await request("ready");
    const about = await request("about");
    byId("startup-notice").replaceChildren();
    setUpKey(about.needs_key, () => views[shown].show());
    footer(about);
    views = {
      utterance: new UtteranceView(about),
      conversation: new ConversationView(about),
      clusters: new ClustersView(about, (turns) => showFromElsewhere("conversation", (view) => view.open(turns))),
      map: new MapView(about, () => onFitted(about)),
      report: new ReportView(about),
    };
    show(viewInUrl() ?? "utterance");
    addEventListener("hashchange", onHashChange);
    setUpIntroduction(about, showFromElsewhere);
  } catch (error) {
    // the page is available before the models are loaded
    const loading = error.code === "loading";
    byId("startup-notice").replaceChildren(loading ? busyNotice("The service is loading its models…") : errorNotice(error, start));
    if (loading) setTimeout(start, 1000 * (error.wait ?? 2));
  }
}

start();
