import {availableParallelism} from 'node:os'
import {join} from 'node:path'
import {z} from 'zod'
import {benchCommands} from './bench/commands.ts'
import {benchModels} from './bench/models.ts'
import {benchPages} from './bench/pages.ts'
import {benchPeers} from './bench/peers.ts'
import {costRow, runScript} from './bench/run-process.ts'
import {benchService} from './bench/service.ts'
import {envOf, makeFolder, publishSection, startServer} from './bench/set-up.ts'

/** Deals and the server's delay per page, ms. */
type Case = [deals: number, delayMs: number]

const QUICK: Case[] = [
  [10_000, 0],
  [10_000, 20],
  [100_000, 0],
]
const FULL: Case[] = [
  [10_000, 200],
  [100_000, 0],
  [100_000, 20],
  [1_000_000, 0],
]

const syncRow = costRow.extend({loaded: costRow, outcome: z.string(), distinct: z.number()})

type Figures = Awaited<ReturnType<typeof measure>>

async function measure([deals, delayMs]: Case) {
  using server = await startServer(deals, delayMs)
  const {url} = server
  using root = makeFolder()
  const env = envOf(url, join(root.path, 'data'))
  const sync = () => syncRow.parse(runScript('sync-run.ts', [], env))
  const bare = costRow.parse(runScript('bare-loop.ts', [url]))
  const first = sync()
  const again = sync()
  await fetch(`${url}/change`)
  const changed = sync()
  if ([first, again, changed].some(({distinct}) => distinct !== deals)) throw new Error('deals were lost')
  return {deals, delayMs, bare, first, again, changed}
}

const seconds = (ms: number) => (ms / 1000).toFixed(1)

function renderRow({deals, delayMs, bare, first, again, changed}: Figures): string {
  const cells = [
    deals.toLocaleString('en'),
    delayMs,
    seconds(bare.wall_ms),
    seconds(first.loaded.wall_ms),
    (first.loaded.wall_ms / bare.wall_ms).toFixed(2),
    seconds(first.wall_ms),
    seconds(first.cpu_ms),
    first.peak_rss_mb,
    seconds(again.wall_ms),
    seconds(changed.wall_ms),
  ]
  return `| ${cells.join(' | ')} |`
}

function renderSection(figures: readonly Figures[]): string {
  return `## A load

\`npm run bench -- --full --write\`, ${availableParallelism()} cores, pages of 100. *bare* is a loop that parses each page and throws it away; *load* is \`loantape sync\`
until the walk is applied; *sync* goes on to the release.

| deals | delay (ms) | bare | load | load / bare | sync | CPU | peak RSS (MB) | sync, unchanged | sync, 1 % changed |
|---|---|---|---|---|---|---|---|---|---|
${figures.map(renderRow).join('\n')}

`
}

async function benchLoads(): Promise<void> {
  const figures: Figures[] = []
  for (const one of process.argv.includes('--full') ? FULL : QUICK) {
    process.stderr.write(`${one[0]} deals, ${one[1]} ms a page …\n`)
    figures.push(await measure(one))
  }
  publishSection(renderSection(figures))
}

const BENCHES: Record<string, () => Promise<void>> = {
  models: benchModels,
  pages: benchPages,
  peers: benchPeers,
  commands: benchCommands,
  service: benchService,
}
await (BENCHES[process.argv[2] ?? ''] ?? benchLoads)()
