import {existsSync, readFileSync} from 'node:fs'
import {join} from 'node:path'
import {expect, test} from 'vitest'

const ROOT = join(import.meta.dirname, '../..')
const page = readFileSync(join(ROOT, 'docs/invariants.md'), 'utf8')
const items = page.split(/^(?=\d+\. )/m).slice(1)
const HOLDER = /^ +- `(test\/[\w/.-]+\.test\.ts)` › "(.+)"$/gm

/** Lists the names of a file's tests; `…` stands for inserted values. */
function listTests(file: string): string[] {
  const path = join(ROOT, file)
  if (!existsSync(path)) return []
  const text = readFileSync(path, 'utf8')
  const calls = text.matchAll(/(?:\b(?:test|it)(?:\.\w+)*|\))\(\s*(['"`])((?:\\.|(?!\1)[^\n])*)\1,/g)
  return [...calls].map(([, , name = '']) => name.replace(/\$\{[^}]*\}|%[a-z]/g, '…').replaceAll("\\'", "'"))
}

test('every promise is numbered and names existing tests by the beginning of their names', () => {
  expect(items.map((item) => Number.parseInt(item, 10))).toEqual(items.map((_, index) => index + 1))
  const unheld = items.filter((item) => [...item.matchAll(HOLDER)].length === 0)
  expect(unheld).toEqual([])

  const named = [...page.matchAll(HOLDER)].map(([, file = '', name = '']) => ({file, name}))
  const unknown = named.filter(({file, name}) => {
    const found = listTests(file).filter((test) => test.startsWith(name.replace(/…$/, '')))
    return new Set(found).size !== 1
  })
  expect(unknown).toEqual([])
  expect(page.match(/›/g)).toHaveLength(named.length)
})

test('every proof that the page names is one of npm run proof', () => {
  const named = [...page.matchAll(/^\| `([\w-]+)` \|/gm)].map(([, name = '']) => name)
  expect(named.length).toBeGreaterThan(5)
  const proofs = /^const PROOFS.*?^}/ms.exec(readFileSync(join(ROOT, 'scripts/proof.ts'), 'utf8'))?.[0] ?? ''
  const known = [...proofs.matchAll(/^ {2}'?([\w-]+)'?: \{/gm)].map(([, name = '']) => name)
  expect(named.filter((name) => !known.includes(name))).toEqual([])
})
