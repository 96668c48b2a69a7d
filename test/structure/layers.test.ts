import {readdirSync, readFileSync} from 'node:fs'
import {basename, dirname, join, relative} from 'node:path'
import {expect, test} from 'vitest'

const ROOT = join(import.meta.dirname, '../..')
const SRC = join(ROOT, 'src')

/** The rooms, lowest first: each may import the ones before it. */
const ROOMS = [
  ...['core', 'contract', 'source', 'store', 'sync', 'accounting', 'build', 'export', 'books', 'record'],
  ...['stories', 'schedule', 'web', 'service', 'client', 'cli', 'main'],
]

/** Rooms that stand alone, and what they may import. */
const ALONE: Record<string, readonly string[]> = {
  source: ['core', 'contract'],
  service: ['core', 'contract'],
  client: ['core', 'contract'],
}

const mayImport = (room: string) => ALONE[room] ?? ROOMS.slice(0, ROOMS.indexOf(room))

function roomOf(file: string): string {
  const [first = '', ...rest] = relative(SRC, file).split('/')
  if (rest.length > 0) return first
  return first === 'main.ts' ? 'main' : 'stories'
}

const files = readdirSync(SRC, {recursive: true, encoding: 'utf8'})
  .filter((file) => file.endsWith('.ts'))
  .map((file) => join(SRC, file))

/** Lists the files that a file imports, statically or dynamically. */
function importsOf(file: string): string[] {
  const found = readFileSync(file, 'utf8').matchAll(/(?:from |import\()'(\.[^']+\.ts)'/g)
  return [...found].map(([, path = '']) => join(dirname(file), path))
}

test('imports run one way: a room imports only those below it', () => {
  expect(ROOMS).toEqual(expect.arrayContaining(files.map(roomOf)))
  const violations = files.flatMap((file) => {
    const room = roomOf(file)
    const targets = importsOf(file).map(roomOf)
    const wrong = targets.filter((target) => target !== room && !mayImport(room).includes(target))
    return wrong.map(
      (target) => `${relative(ROOT, file)} imports ${target}: see "The rooms" in ARCHITECTURE.md`,
    )
  })
  expect(violations).toEqual([])
})

test('no file imports itself through others', () => {
  let left = new Map(files.map((file) => [file, importsOf(file)]))
  // Removes files whose imports are all removed. The rest form cycles or lead to one.
  for (let size = -1; size !== left.size; ) {
    size = left.size
    left = new Map([...left].filter(([, imports]) => imports.some((file) => left.has(file))))
  }
  expect([...left.keys()].map((file) => relative(ROOT, file))).toEqual([])
})

test('only commands that draw or serve pages load the libraries for it at startup', () => {
  const heavy = ['echarts', 'fastify', 'yaml', '@clickhouse/client', 'pg', '@cj-tech-master/excelts']
  const serving = ['serve.ts', 'service.ts']
  const atOnce = /^(?:import|export) (?!type )[^']*? from '([^']+)'/gms
  const loaded = (file: string, seen: Set<string>): Set<string> => {
    for (const [, path = ''] of readFileSync(file, 'utf8').matchAll(atOnce)) {
      const target = path.startsWith('.') ? join(dirname(file), path) : path
      if (seen.has(target)) continue
      seen.add(target)
      if (path.startsWith('.')) loaded(target, seen)
    }
    return seen
  }
  const commands = files.filter((file) => roomOf(file) === 'cli' && !serving.includes(basename(file)))
  const found = commands.flatMap((file) =>
    [...loaded(file, new Set())]
      .filter((name) => heavy.some((library) => name === library || name.startsWith(`${library}/`)))
      .map((name) => `${relative(ROOT, file)} loads ${name}`),
  )
  expect(found).toEqual([])
})

test('only main.ts reads the environment or ends the process', () => {
  const others = files.filter((file) => roomOf(file) !== 'main')
  const offenders = others.filter((file) => /process\.(env|exit|exitCode)\b/.test(readFileSync(file, 'utf8')))
  expect(offenders.map((file) => relative(ROOT, file))).toEqual([])
})
