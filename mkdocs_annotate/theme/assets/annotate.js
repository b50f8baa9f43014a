// Symbols light up together; the bar says where the reader is; figures open large.
// Nothing here is needed to read.
(() => {
  const all = (css, from = document) => [...from.querySelectorAll(css)]
  const one = (css) => document.querySelector(css)
  const on = (target, type, act, options) => target?.addEventListener(type, act, options)

  // Symbols: hover lights, a click or a chip pins, Escape clears
  const slot = (el) => el.closest?.(".sym, .chip")?.className.match(/\by\d\b/)?.[0]
  let pinned
  const light = (hover) => {
    all(".lit").forEach((el) => el.classList.remove("lit"))
    for (const k of new Set([pinned, hover])) if (k) all(`.sym.${k}`).forEach((el) => el.classList.add("lit"))
    all(".chip").forEach((el) => el.setAttribute("aria-pressed", !!pinned && el.classList.contains(pinned)))
  }
  on(document, "mouseover", (e) => light(slot(e.target)))
  on(document, "focusin", (e) => e.target.matches(".chip") && light(slot(e.target)))
  on(document, "focusout", (e) => e.target.matches(".chip") && light())

  // Popovers: one at a time
  const close = (except) => all(".pop[open]").forEach((d) => d !== except && (d.open = false))
  on(document, "click", (e) => {
    const k = slot(e.target)
    if (k) { pinned = pinned === k ? undefined : k; light() }
    close(e.target.closest(".pop a") ? null : e.target.closest(".pop"))
  })

  // Where the reader is
  const sections = ".row, .page :is(h2, h3, h4)[id]"
  const named = ".row--class, .row--def, .page :is(h2, h3, h4)[id]"
  const current = (css) => {
    let found
    for (const el of all(css)) if (el.getBoundingClientRect().top < 160) found = el; else break
    return found
  }
  const where = one("[data-where]"), file = one("[data-source]"), source = file?.href
  const look = () => {
    const here = current(named)
    if (where) where.textContent = !here ? where.dataset.where : here.matches(".row") ? here.id.replaceAll(".", " › ") : here.firstChild.textContent
    all(".bar .pop li a").forEach((a) => (here && a.hash === "#" + encodeURI(here.id) ? a.setAttribute("aria-current", "true") : a.removeAttribute("aria-current")))
    const line = file && current(".row")?.querySelector(".line")
    if (file) file.href = source + (line ? "#" + line.id : "")
  }
  let waiting
  on(window, "scroll", () => { waiting ||= requestAnimationFrame(() => { waiting = 0; look() }) }, { passive: true })
  look()

  // The other language opens at the same section
  on(document, "click", (e) => {
    const link = e.target.closest?.("[data-language]")
    if (!link) return
    const target = location.hash && document.getElementById(decodeURIComponent(location.hash.slice(1)))
    const box = target && target.getBoundingClientRect()
    const seen = box && box.bottom > 0 && box.top < innerHeight
    link.hash = seen ? location.hash : current(sections)?.id || ""
  }, true)

  // Figures open large
  const large = one("dialog.large")
  let opener
  on(document, "click", (e) => {
    const link = e.target.closest?.("a.zoom")
    if (!link || e.ctrlKey || e.metaKey || e.shiftKey) return
    e.preventDefault()
    opener = link
    const figure = one("dialog.large figure"), caption = link.closest("figure")?.querySelector("figcaption")
    const { width, height } = link.firstElementChild.getBoundingClientRect()
    figure.style = `--w:${width}px;--h:${height}px`  // never smaller than in the page
    figure.replaceChildren(link.firstElementChild.cloneNode(true), caption ? caption.cloneNode(true) : "")
    all("[id]", figure).forEach((el) => el.removeAttribute("id"))
    large.showModal()
  })
  on(large, "click", (e) => e.target === large && large.close())
  on(large, "close", () => opener.focus())

  // What scrolls inside itself can be scrolled with the keyboard
  const reach = () => all(".book pre:not([tabindex]), .katex-display, .wide, .md-typeset__scrollwrap").forEach((el) => {
    if (el.scrollWidth > el.clientWidth) el.tabIndex = 0
  })
  on(window, "load", reach)  // by then Material has put tables into boxes
  on(window, "resize", reach)

  on(document, "keydown", (e) => {
    if (e.key !== "Escape" || one("dialog[open]")) return
    const shown = one(".pop[open] summary")
    if (shown) { close(); shown.focus() } else { pinned = undefined; light() }
  })

  // Opened from a disk there is no server that finds the index.html of a folder
  if (location.protocol === "file:") all("a[href]").forEach((a) => {
    if (a.protocol === "file:" && a.pathname.endsWith("/")) a.pathname += "index.html"
  })
})()
