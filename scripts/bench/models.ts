import {mkdirSync} from 'node:fs'
import {availableParallelism} from 'node:os'
import {join} from 'node:path'
import {z} from 'zod'
import {dataFolderAt} from '../../src/store/data-folder.ts'
import {VERSIONS_PER_DEAL, writeLargeHistory, writeNight} from './large-history.ts'
import {runScript} from './run-process.ts'
import {makeFolder, publishSection} from './set-up.ts'

const SIZES = [10_000, 100_000, 1_000_000]

const buildRow = z.object({
  built: z.object({cpu_ms: z.number(), peak_rss_mb: z.number()}),
  steps: z.record(z.string(), z.number()),
  slowest: z.array(z.object({name: z.string(), rows: z.number(), duration_ms: z.number()})),
  database_bytes: z.number(),
  parquet_bytes: z.number(),
  summary_ms: z.number(),
})

type Build = z.output<typeof buildRow>

/** A build of the whole history, and one of the night after it, on which a hundredth of the deals changed. */
type Figures = Awaited<ReturnType<typeof measure>>

/** Builds releases of growing size and says what each cost; with `--write` also in `docs/benchmarks.md`. */
export async function benchModels(): Promise<void> {
  const figures: Figures[] = []
  for (const deals of SIZES) {
    process.stderr.write(`${deals} deals, ${deals * VERSIONS_PER_DEAL} versions …\n`)
    figures.push(await measure(deals))
  }
  publishSection(renderSection(figures))
}

async function measure(deals: number) {
  using root = makeFolder()
  const folder = dataFolderAt(join(root.path, 'data'))
  mkdirSync(folder.root)
  await writeLargeHistory(folder.warehouse, deals)
  const build = async () =>
    buildRow.parse(await runScript('build-run.ts', [], {LOANTAPE_DATA_DIR: folder.root}))
  const whole = await build()
  await writeNight(folder.warehouse, 100)
  return {deals, whole, night: await build()}
}

const seconds = (ms: number) => (ms / 1000).toFixed(2)
const megabytes = (bytes: number) => (bytes / 1e6).toFixed(1)
const totalMs = ({steps}: Build) => between(steps, 'begun', 'ended')
const between = (steps: Build['steps'], from: string, to: string) => (steps[to] ?? 0) - (steps[from] ?? 0)

function renderRow({deals, whole, night}: Figures): string {
  const cells = [
    deals.toLocaleString('en'),
    seconds(totalMs(whole)),
    seconds(between(whole.steps, 'models compiled', 'models built')),
    seconds(between(whole.steps, 'models built', 'checks passed')),
    seconds(between(whole.steps, 'checks passed', 'tables written')),
    seconds(whole.built.cpu_ms),
    whole.built.peak_rss_mb,
    megabytes(whole.database_bytes),
    megabytes(whole.parquet_bytes),
    whole.summary_ms.toFixed(1),
    seconds(totalMs(night)),
    (totalMs(night) / totalMs(whole)).toFixed(2),
  ]
  return `| ${cells.join(' | ')} |`
}

function renderSlowest({slowest}: Build): string {
  return slowest.map(({name, duration_ms}) => `\`${name}\` ${seconds(duration_ms)}`).join(', ')
}

function renderSection(figures: readonly Figures[]): string {
  const [small, large] = [figures[0], figures.at(-1)]
  if (!small || !large) return ''
  const growth = totalMs(large.whole) / totalMs(small.whole)
  return `## A build

\`npm run bench models -- --write\`, ${availableParallelism()} cores. A history of so many deals with ${VERSIONS_PER_DEAL} versions each, then \`loantape build\`; *summary* is the warm query of
\`mart.portfolio_summary\` in ms; on the *night* one deal in a hundred has another amount. Times in seconds, sizes in MB.

| deals | build | models | checks | Parquet | CPU | peak RSS | DuckDB file | Parquet files | summary | night | night / build |
|---|---|---|---|---|---|---|---|---|---|---|---|
${figures.map(renderRow).join('\n')}

From ${small.deals.toLocaleString('en')} to ${large.deals.toLocaleString('en')} deals (${large.deals / small.deals} times as many) the build takes ${growth.toFixed(1)} times as long. Slowest models (s):
${renderSlowest(large.whole)}.

`
}
