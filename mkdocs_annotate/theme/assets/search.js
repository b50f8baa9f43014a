// The search. Query and texts are cut by the same rules, and a word is looked for inside the texts themselves, so that a
// Japanese compound is found wherever it stands: there are no spaces to go by, and no dictionary would know it.
(() => {
  const fold = (text) => text.normalize("NFKC").toLowerCase()
  const CJK = "\\p{sc=Han}\\p{sc=Hiragana}\\p{sc=Katakana}\\p{sc=Hangul}ー々〆"
  const WORD = new RegExp(`[${CJK}]+|[\\p{L}\\p{N}_.'-]+`, "gu")
  const PART = /[\p{sc=Han}々〆]+|[\p{sc=Katakana}ー]+|[\p{sc=Hangul}]+|[\p{L}\p{N}_.'-]+/gu
  const isCjk = (word) => new RegExp(`^[${CJK}]`, "u").test(word)
  const trim = (word) => word.replace(/^[.'-]+|[.'-]+$/g, "")

  // What a query is cut into; each further way is tried if the one before finds nothing.
  const cut = (text) => (fold(text).match(WORD) || []).map(trim).filter(Boolean)
  const ways = (query) => {
    const words = cut(query)
    const parts = words.flatMap((word) => (isCjk(word) ? word.replace(/\p{sc=Hiragana}+/gu, " ").match(PART) || [word] : [word]))
    const stems = parts.map((word) => (isCjk(word) || word.length < 6 ? word : word.slice(0, Math.max(5, word.length - 3))))
    return [words, parts, stems]
  }

  const boundary = (text, at) => !at || !/[\p{L}\p{N}]/u.test(text[at - 1]) || !/[\p{L}\p{N}]/u.test(text[at])
  const rate = (text, word, cjk) => {
    let score = 0
    for (let at = text.indexOf(word), n = 0; at >= 0 && n < 5; at = text.indexOf(word, at + 1), n++)
      score += cjk || boundary(text, at) ? (n ? 1 : 6) : n ? 0.5 : 2
    return score
  }
  const score = (doc, words, query) => {
    let sum = 0
    for (const word of words) {
      const cjk = isCjk(word)
      const inTitle = rate(doc.heading, word, cjk), inText = rate(doc.body, word, cjk)
      if (!inTitle && !inText) return 0
      const exact = doc.heading === word || doc.heading.endsWith("." + word)
      sum += inText + 5 * inTitle + (exact ? 60 : 0)
    }
    return sum + (words.length > 1 && doc.body.includes(query) ? 15 : 0) + (doc.page === doc.location ? 2 : 0)
  }

  const search = (docs, query) => {
    const folded = fold(query).trim()
    for (const words of ways(query)) {
      if (!words.length) continue
      const hits = docs.map((doc) => ({ doc, score: score(doc, words, folded) })).filter((hit) => hit.score)
      if (!hits.length) continue
      const pages = new Map()
      for (const hit of hits) {
        const page = pages.get(hit.doc.page) || { best: 0, hits: [] }
        page.best = Math.max(page.best, hit.score)
        page.hits.push(hit)
        pages.set(hit.doc.page, page)
      }
      const found = [...pages].map(([page, { best, hits }]) => ({ page, best: best + Math.min(hits.length, 10) / 10, hits: hits.sort((a, b) => b.score - a.score).map((hit) => hit.doc) }))
      return { words, pages: found.sort((a, b) => b.best - a.best) }
    }
    return { words: [], pages: [] }
  }

  const marked = (text, words) => {
    const nodes = [], low = text.toLowerCase()
    for (let at = 0; at < text.length; ) {
      const next = words.map((word) => [low.indexOf(word, at), word]).filter(([i]) => i >= 0).sort((a, b) => a[0] - b[0] || b[1].length - a[1].length)[0]
      if (!next || low.length !== text.length) { nodes.push(text.slice(at)); break }
      const mark = document.createElement("mark")
      mark.textContent = text.slice(next[0], next[0] + next[1].length)
      nodes.push(text.slice(at, next[0]), mark)
      at = next[0] + next[1].length
    }
    return nodes
  }
  const snippet = (doc, words) => {
    const at = Math.max(0, Math.min(...words.map((word) => doc.body.indexOf(word)).filter((i) => i >= 0), doc.text.length) % doc.text.length || 0)
    const from = at < 50 ? 0 : doc.text.indexOf(" ", at - 50) + 1 || at - 40
    const start = from > at ? Math.max(0, at - 20) : from
    const text = doc.text.slice(start, start + 170)
    return (start ? "… " : "") + text + (start + 170 < doc.text.length ? " …" : "")
  }

  window.annotateSearch = async (dialog, words, base, script) => {
    const input = dialog.querySelector("input"), list = dialog.querySelector("ol"), status = dialog.querySelector("[role=status]")
    const local = location.protocol === "file:"
    let docs
    try {
      if (local) await script(base + "search/search_index.js")
      const index = local ? window.annotateIndex : await (await fetch(base + "search/search_index.json")).json()
      docs = index.docs.map((doc) => {
        const text = doc.text.normalize("NFKC"), title = doc.title.normalize("NFKC")
        return { ...doc, text, title, body: text.toLowerCase(), heading: title.toLowerCase(), page: doc.location.split("#")[0] }
      })
    } catch { status.textContent = words["The search index could not be loaded"]; return }
    const titles = new Map(docs.filter((doc) => doc.page === doc.location).map((doc) => [doc.page, doc]))

    const item = (doc, hit, found, isPage) => {
      const li = document.createElement("li"), a = document.createElement("a"), b = document.createElement("b")
      a.href = base + doc.page + (local ? "index.html" : "") + doc.location.slice(doc.page.length)
      b.append(...marked(doc.title, found))
      a.append(b)
      if (hit && doc.text) {
        const p = document.createElement("p")
        p.className = "snippet"
        p.append(...marked(snippet(doc, found), found))
        a.append(p)
      }
      if (isPage) li.className = "page-hit"
      li.append(a)
      return li
    }
    const show = () => {
      const { words: found, pages } = search(docs, input.value)
      list.replaceChildren()
      for (const { page, hits } of pages.slice(0, 12)) {
        const own = titles.get(page), rows = hits.filter((doc) => doc !== own)
        if (own) list.append(item(own, hits.includes(own), found, true))
        list.append(...rows.slice(0, 4).map((doc) => item(doc, true, found, false)))
        if (rows.length > 4) {
          const li = document.createElement("li"), p = document.createElement("p")
          p.className = "more"
          p.textContent = `+ ${rows.length - 4} ${words["more on this page"]}`
          li.append(p)
          list.append(li)
        }
      }
      list.querySelector("a")?.classList.add("first")
      list.scrollTop = 0
      status.textContent = !input.value.trim() ? "" : pages.length ? `${words["Pages found:"]} ${pages.length}` : words["No page found"]
    }
    input.addEventListener("input", show)
    dialog.addEventListener("click", (e) => e.target.closest("a") && dialog.close())
    dialog.addEventListener("keydown", (e) => {
      const links = [...list.querySelectorAll("a")], at = links.indexOf(document.activeElement)
      if (e.key === "Enter" && e.target === input) { e.preventDefault(); links[0]?.click() }
      if (e.key !== "ArrowDown" && e.key !== "ArrowUp") return
      e.preventDefault()
      const to = e.key === "ArrowDown" ? at + 1 : at - 1
      ;(to < 0 ? input : links[Math.min(to, links.length - 1)] || input).focus()
    })
    show()
  }
})()
