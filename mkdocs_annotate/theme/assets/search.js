// The index of the search is larger than most pages: it is asked for when the reader turns to the search.
// Material's script, which comes after this one, asks for it at once.
(({ open, send }) => {
  let go
  const turned = new Promise((done) => { go = done })
  const own = XMLHttpRequest.prototype
  own.open = function (method, address, ...rest) {
    this.late = String(address).includes("search/search_index")
    open.call(this, method, address, ...rest)
  }
  own.send = function (body) {
    if (this.late) turned.then(() => send.call(this, body))
    else send.call(this, body)
  }
  addEventListener("focusin", (event) => { if (event.target.closest(".md-search")) go() })
  if (/[?&]q=/.test(location.search)) go()
})(XMLHttpRequest.prototype)
