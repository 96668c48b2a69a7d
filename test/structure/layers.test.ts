import {readdirSync, readFileSync} from 'node:fs'
import {dirname, join, relative} from 'node:path'
import {expect, test} from 'vitest'

const ROOT = join(import.meta.dirname, '../..')
const SRC = join(ROOT, 'src')

/** The rooms, lowest first: each may import those before it. */
const ROOMS = [
  'core',
  'contract',
  'source',
  'store',
  'sync',
  'accounting',
  'build',
  'export',
  'books',
  'record',
  'stories',
  'schedule',
  'web',
  'service',
  'client',
  'cli',
  'main',
]

/** Rooms that stand alone: what they may import beside themselves. */
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

test('imports run one way: a room imports only what lies below it', () => {
  const violations = files.flatMap((file) => {
    const room = roomOf(file)
    const imports = [...readFileSync(file, 'utf8').matchAll(/(?:from |import\()'(\.[^']+\.ts)'/g)]
    return imports
      .map(([, path = '']) => roomOf(join(dirname(file), path)))
      .filter((target) => target !== room && !mayImport(room).includes(target))
      .map(
        (target) =>
          `${relative(ROOT, file)}: room ${room} imports ${target}, see "The rooms" in ARCHITECTURE.md`,
      )
  })
  expect(violations).toEqual([])
})

test('every folder of src is a room the rule knows', () => {
  expect([...new Set(files.map(roomOf))].filter((room) => !ROOMS.includes(room))).toEqual([])
})

test('only main.ts reads the environment or ends the process', () => {
  const others = files.filter((file) => roomOf(file) !== 'main')
  const offenders = others.filter((file) => /process\.(env|exit|exitCode)\b/.test(readFileSync(file, 'utf8')))
  expect(offenders.map((file) => relative(ROOT, file))).toEqual([])
})
