"""A visit of the page in a browser, and accessibility checks."""

from typing import Any

#: Texts whose contrast with the background is below 4.5, or 3 if they are large; disabled buttons are left out.
LOW_CONTRAST = """() => {
  const parse = (colour) => { const c = document.createElement("canvas").getContext("2d", { willReadFrequently: true });
    c.fillStyle = colour; c.fillRect(0, 0, 1, 1); return [...c.getImageData(0, 0, 1, 1).data]; };
  const linear = (v) => v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4;
  const light = (c) => { const [r, g, b] = c.map((v) => linear(v / 255)); return 0.2126*r + 0.7152*g + 0.0722*b; };
  const behind = (node) => { for (; node; node = node.parentElement) {
    const c = parse(getComputedStyle(node).backgroundColor); if (c[3] === 255) return c; } return [255, 255, 255]; };
  return [...document.querySelectorAll("body *")].filter((node) => {
    if (![...node.childNodes].some((child) => child.nodeType === 3 && child.textContent.trim())) return false;
    if (!node.checkVisibility() || node.closest(":disabled, .visually-hidden, .skip-link, option")) return false;
    const style = getComputedStyle(node);
    const [a, b] = [light(parse(style.color)), light(behind(node))].sort((x, y) => y - x);
    return (a + 0.05) / (b + 0.05) < (parseFloat(style.fontSize) >= 24 ? 3 : 4.5);
  }).map((node) => [node.tagName, node.className, node.textContent.slice(0, 40)]);
}"""

#: Focusable elements without an accessible name.
UNNAMED = """() => {
  const reached = "a, button, input, textarea, select, canvas, iframe, summary, [tabindex='0']";
  const named = (node) => node.textContent.trim() || node.ariaLabel || node.title || node.labels?.length;
  const nameless = [...document.querySelectorAll(reached)].filter((node) => node.checkVisibility() && !named(node));
  return nameless.map((node) => node.outerHTML);
}"""


class Visit:
    """An open page, with its requests and console messages."""

    def __init__(
        self,
        browser: Any,
        site: str,
        view: str = "",
        *,
        width: int = 1280,
        height: int = 900,
        first: bool = False,
        **options: Any,
    ) -> None:
        """Open a view; unless it is the `first` visit, without the introduction."""
        self.site = site
        self.context = browser.new_context(viewport={"width": width, "height": height}, **options)
        if not first:
            # the report is a sandboxed frame without storage
            self.context.add_init_script("try { localStorage.setItem('turnwise-introduced', 'yes'); } catch {}")
        self.page = self.context.new_page()
        self.page.set_default_timeout(120_000)
        self.requests: list[str] = []
        self.complaints: list[str] = []
        self.page.on("request", lambda request: self.requests.append(request.url))
        self.page.on("console", lambda message: self.complaints.append(message.text))
        self.page.on("pageerror", lambda error: self.complaints.append(str(error)))
        self.page.goto(f"{site}/#{view}")
        self.page.wait_for_selector("#about b")

    def __getattr__(self, name: str) -> Any:
        return getattr(self.page, name)

    def ask(self, text: str) -> None:
        """Submit an utterance and wait for all results."""
        self.page.fill("#utterance-text", text)
        self.page.keyboard.press("Enter")
        self.page.wait_for_function("() => !document.querySelector('#view-utterance [aria-busy]')")

    def read(self, text: str) -> None:
        """Submit a conversation and wait for all results."""
        self.page.fill("#conversation-text", text)
        self.page.keyboard.press("Control+Enter")
        self.page.wait_for_function("() => !document.querySelector('#view-conversation [aria-busy]')")

    def press(self, name: str, inside: str = "body") -> None:
        """Press the first button with this name."""
        self.page.locator(inside).get_by_role("button", name=name, exact=True).first.click()

    def toast(self, text: str) -> None:
        """Wait for a toast with this text."""
        self.page.locator(".toast", has_text=text).wait_for()

    def close(self, *, expected: str | None = None) -> None:
        """Check that the page contacted no other host and logged nothing unexpected."""
        assert self.requests
        assert [url for url in self.requests if not url.startswith((f"{self.site}/", f"blob:{self.site}/"))] == []
        assert [text for text in self.complaints if expected is None or expected not in text] == []
        self.context.close()
