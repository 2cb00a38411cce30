// The evaluation report that the service was given.
import { button, element, find } from "./elements.js";
import { attempt, notConfigured } from "./notices.js";
import { fetchFile } from "./service.js";
import { save } from "./saving.js";

export class ReportView {
  #about;
  #filled = false;

  constructor(about) {
    this.#about = about;
  }

  // The report is read only when somebody looks at it.
  show() {
    if (this.#filled) return;
    this.#filled = true;
    find("report-body").replaceChildren(...this.#content());
  }

  #content() {
    if (!this.#about.report) {
      return [
        notConfigured("There is no report", "A report says how well a model does on tasks and data sets, beside the figures that papers print.", [
          ["Have data to measure on. The sample world will do to begin with:", "turnwise corpus sample --out data"],
          ["Measure the model; the report is written beside the figures:", "turnwise evaluate MODEL --task intents --data data --out results"],
          ["Serve it:", "turnwise serve --model MODEL --report results"],
        ]),
      ];
    }
    if (this.#about.needs_key) {
      return [
        element("p", {}, "This service answers to a key, which a browser cannot send with a page of its own. Save the report, and open the file: it needs nothing else."),
        button("Save the report", () => attempt(async () => save(await fetchFile("report"), "report.html")), { class: "main" }),
      ];
    }
    return [
      element("p", {}, element("a", { href: "report", target: "_blank", rel: "noopener" }, "Open it in a tab of its own")),
      element("iframe", { src: "report", title: "Evaluation report", class: "report" }),
    ];
  }
}
