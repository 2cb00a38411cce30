// Files that somebody keeps.
import { element } from "./elements.js";

// Offers a blob under a name, as if it had been a link to a file.
export function save(blob, name) {
  const address = URL.createObjectURL(blob);
  const link = element("a", { href: address, download: name, hidden: true });
  document.body.append(link);
  link.click();
  link.remove();
  setTimeout(() => URL.revokeObjectURL(address), 60_000); // a browser may still be writing
}
