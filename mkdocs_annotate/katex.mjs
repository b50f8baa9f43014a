// Sets equations: a line of JSON with `tex` and `display` on standard input, a line with `html` or `error` on standard output.
// node katex.mjs FOLDER: the folder of the npm package `katex`.
import { createInterface } from "node:readline"
import { resolve } from "node:path"
import { pathToFileURL } from "node:url"

const { default: katex } = await import(pathToFileURL(resolve(process.argv[2], "dist/katex.mjs")).href)
const say = (value) => process.stdout.write(JSON.stringify(value) + "\n")

say({ version: katex.version })
for await (const line of createInterface({ input: process.stdin })) {
  const { tex, display } = JSON.parse(line)
  try {
    const html = katex.renderToString(tex, {
      displayMode: display,
      output: "htmlAndMathml",
      maxSize: 50,
      strict: "ignore",
      throwOnError: true,
      trust: ({ command }) => command === "\\htmlClass" || command === "\\htmlData",
    })
    say({ html })
  } catch (error) {
    say({ error: error.rawMessage ?? String(error.message ?? error), position: error.position ?? 0 })
  }
}
