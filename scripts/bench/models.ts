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
  database_bytes: z.number(),
  parquet_bytes: z.number(),
})

type Build = z.output<typeof buildRow>

/** A build of the whole history, and the build of the next night, on which one deal in a hundred changed. */
type Figures = Awaited<ReturnType<typeof measure>>

/** Benchmarks builds of growing size. With `--write`, updates `docs/benchmarks.md`. */
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
  const build = () => buildRow.parse(runScript('build-run.ts', [], {LOANTAPE_DATA_DIR: folder.root}))
  const whole = build()
  await writeNight(folder.warehouse, 100)
  return {deals, whole, night: build()}
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
    seconds(between(whole.steps, 'checks passed', 'tables written')),
    seconds(whole.built.cpu_ms),
    whole.built.peak_rss_mb,
    megabytes(whole.database_bytes),
    megabytes(whole.parquet_bytes),
    seconds(totalMs(night)),
  ]
  return `| ${cells.join(' | ')} |`
}

function renderSection(figures: readonly Figures[]): string {
  return `## A build

\`npm run bench models -- --write\`, ${availableParallelism()} cores. A history of so many deals with ${VERSIONS_PER_DEAL} versions each, then \`loantape build\`; on the *night*
one deal in a hundred has another amount. Sizes in MB.

| deals | build | models | Parquet | CPU | peak RSS | DuckDB file | Parquet files | night |
|---|---|---|---|---|---|---|---|---|
${figures.map(renderRow).join('\n')}

`
}
