import {readdirSync, readFileSync} from 'node:fs'
import {dirname, join, relative} from 'node:path'
import {expect, test} from 'vitest'

const ROOT = join(import.meta.dirname, '../..')
const SRC = join(ROOT, 'src')

const STAGES = [
  'source',
  'tape',
  'normalise',
  'load',
  'model',
  'check',
  'release',
  'export',
  'delivery',
  'postgres',
  'clickhouse',
  'page',
  'alarm',
]
const BASE = ['kernel', 'contract', 'warehouse', 'state']

/** What each layer may import beside itself; the map in ARCHITECTURE.md says why. */
const MAY_IMPORT: Record<string, readonly string[]> = {
  kernel: [],
  contract: ['kernel'],
  warehouse: ['kernel', 'contract'],
  state: ['kernel', 'contract'],
  ...Object.fromEntries(STAGES.map((stage) => [stage, BASE])),
  accounting: [...BASE, 'export'],
  service: ['kernel', 'contract'],
  client: ['kernel', 'contract'],
  push: ['kernel', 'contract', 'client'],
  sync: [...BASE, 'source', 'tape', 'normalise', 'load'],
  pipeline: [...BASE, ...STAGES, 'accounting', 'sync'],
  schedule: [...BASE, ...STAGES, 'accounting', 'sync', 'pipeline'],
  web: [...BASE, ...STAGES, 'accounting', 'sync', 'pipeline', 'schedule'],
  cli: [...BASE, ...STAGES, 'accounting', 'sync', 'pipeline', 'schedule', 'web', 'service', 'client', 'push'],
  main: ['cli'],
}

function layerOf(file: string): string {
  const [first = '', ...rest] = relative(SRC, file).split('/')
  if (rest.length > 0) return first
  const name = first.replace('.ts', '')
  return name === 'main' || name === 'pipeline' ? name : 'kernel'
}

const files = readdirSync(SRC, {recursive: true, encoding: 'utf8'})
  .filter((file) => file.endsWith('.ts'))
  .map((file) => join(SRC, file))

test('imports run one way: a layer imports only what lies below it', () => {
  const violations = files.flatMap((file) => {
    const layer = layerOf(file)
    const imports = [...readFileSync(file, 'utf8').matchAll(/from '(\.[^']+\.ts)'/g)]
    return imports
      .map(([, path = '']) => layerOf(join(dirname(file), path)))
      .filter((target) => target !== layer && !MAY_IMPORT[layer]?.includes(target))
      .map(
        (target) =>
          `${relative(ROOT, file)}: layer ${layer} imports ${target}, see "Layers" in ARCHITECTURE.md`,
      )
  })
  expect(violations).toEqual([])
})

test('every folder of src is a layer the rule knows', () => {
  expect([...new Set(files.map(layerOf))].filter((layer) => !(layer in MAY_IMPORT))).toEqual([])
})

test('only main.ts reads the environment or ends the process', () => {
  const others = files.filter((file) => layerOf(file) !== 'main')
  const offenders = others.filter((file) => /process\.(env|exit|exitCode)\b/.test(readFileSync(file, 'utf8')))
  expect(offenders.map((file) => relative(ROOT, file))).toEqual([])
})
