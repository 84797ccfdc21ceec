// Loads PAGE into a frame of a given width and writes what it found as JSON. Runs in the page around it, not in PAGE.
const frame = document.getElementById("f");
frame.srcdoc = PAGE;
frame.onload = () => {
  const doc = frame.contentDocument, win = frame.contentWindow, root = doc.documentElement;
  const luminance = (c) => {
    const part = (v) => (v /= 255) <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4;
    return 0.2126 * part(c[0]) + 0.7152 * part(c[1]) + 0.0722 * part(c[2]);
  };
  const colour = (text) => (text.match(/[\d.]+/g) || []).map(Number);
  const ground = (e) => {
    for (; e; e = e.parentElement) {
      const c = colour(win.getComputedStyle(e).backgroundColor);
      if (c.length === 3 || c[3] === 1) return c;
    }
    return [255, 255, 255];
  };
  const ratio = (a, b) => {
    const [x, y] = [luminance(a), luminance(b)].sort((p, q) => q - p);
    return (x + 0.05) / (y + 0.05);
  };
  const own = (e) => [...e.childNodes].some((n) => n.nodeType === 3 && n.textContent.trim());
  const texts = [...doc.body.querySelectorAll("*")].filter((e) => own(e) && !["TITLE", "DESC"].includes(e.tagName.toUpperCase()));
  const inks = texts.map((e) => {
    const style = win.getComputedStyle(e);
    const ink = colour(e instanceof win.SVGElement ? style.fill : style.color);
    return { ratio: ratio(ink, ground(e)), what: e.tagName + ": " + e.textContent.trim().slice(0, 40) };
  });
  const worst = inks.sort((a, b) => a.ratio - b.ratio)[0];
  const shapes = [...doc.querySelectorAll("svg rect, svg circle")].map((e) => ratio(colour(win.getComputedStyle(e).fill), ground(e)));
  const wide = [...doc.body.querySelectorAll("*")].filter((e) => {
    const box = e.getBoundingClientRect();
    const head = e.closest("thead"); // on a phone it is there for screen readers only, one pixel wide
    const hidden = head !== null && head.getBoundingClientRect().width <= 1;
    return box.width > 1 && !hidden && box.right > root.clientWidth + 1;
  });
  const svgText = [...doc.querySelectorAll("svg text")].map((e) => e.getBoundingClientRect().height);
  const levels = [...doc.querySelectorAll("h1,h2,h3,h4,h5,h6")].map((e) => Number(e.tagName[1]));
  document.getElementById("found").textContent = JSON.stringify({
    scroll: root.scrollWidth,
    client: root.clientWidth,
    beyond: wide.slice(0, 5).map((e) => e.outerHTML.slice(0, 120)),
    contrast: worst,
    shapes: Math.min(...shapes),
    ground: ground(doc.body),
    levels,
    unnamed: [...doc.querySelectorAll("svg")].filter((e) => !doc.getElementById(e.getAttribute("aria-labelledby").split(" ")[0])).length,
    scripts: doc.querySelectorAll("script, img, link, iframe").length,
    pwned: win.pwned === undefined ? null : win.pwned,
    requests: win.performance.getEntriesByType("resource").map((e) => e.name),
    smallest: Math.min(...svgText),
    stacked: [...doc.querySelectorAll("td")].every((e) => win.getComputedStyle(e).display === "block"),
    lang: root.lang,
  });
};
