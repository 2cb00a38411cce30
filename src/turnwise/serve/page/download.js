// Offers a blob as a file download.
import { element } from "./elements.js";

export function download(blob, name) {
  const url = URL.createObjectURL(blob);
  const link = element("a", { href: url, download: name, hidden: true });
  document.body.append(link);
  link.click();
  link.remove();
  setTimeout(() => URL.revokeObjectURL(url), 60_000); // the browser may still be writing
}
