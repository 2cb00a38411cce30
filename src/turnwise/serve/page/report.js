// The view of the evaluation report.
import { button, byId, element } from "./elements.js";
import { attempt, notConfigured } from "./notices.js";
import { fetchFile } from "./service.js";
import { download } from "./download.js";

export class ReportView {
  #about;
  #filled = false;

  constructor(about) {
    this.#about = about;
  }

  // The report is loaded when the view is shown.
  show() {
    if (this.#filled) return;
    this.#filled = true;
    byId("report-body").replaceChildren(...this.#content());
  }

  #content() {
    if (!this.#about.report) {
      return [
        notConfigured("No report", "A report shows a model's metrics on tasks and data sets, beside published results.", [
          ["Get data to evaluate on, for example the sample world:", "turnwise corpus sample --out data"],
          ["Evaluate the model, which writes the report:", "turnwise evaluate MODEL --task intents --data data --out results"],
          ["Serve it:", "turnwise serve --model MODEL --report results"],
        ]),
      ];
    }
    if (this.#about.needs_key) {
      return [
        element("p", {}, "This service requires a key, which a browser cannot send with an embedded page. Download the report and open the file."),
        button("Download report", () => attempt(async () => download(await fetchFile("report"), "report.html")), { class: "main" }),
      ];
    }
    return [
      element("p", {}, element("a", { href: "report", target: "_blank", rel: "noopener" }, "Open in a new tab")),
      element("iframe", { src: "report", title: "Evaluation report", class: "report" }),
    ];
  }
}
