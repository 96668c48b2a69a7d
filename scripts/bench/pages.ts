import {mkdirSync, readdirSync, readFileSync} from 'node:fs'
import {availableParallelism} from 'node:os'
import {dirname, join} from 'node:path'
import {z} from 'zod'
import {parseConfig} from '../../src/core/config.ts'
import {dataFolderAt} from '../../src/store/data-folder.ts'
import {openRelease, requireRelease} from '../../src/store/release.ts'
import {openStateDb} from '../../src/store/state-db.ts'
import {requireTapeKey} from '../../src/store/tape-key.ts'
import {startWeb} from '../../src/web/web-server.ts'
import {createWorld} from '../../test/support/data.ts'
import {writeJobFile} from '../../test/support/jobs.ts'
import {writeLargeHistory, writeNight} from './large-history.ts'
import {runScript} from './run-process.ts'
import {makeFolder, publishSection} from './set-up.ts'

const DEALS = 1_000_000
const ROUNDS = 5

/** Filters by how many deals they keep. Each round moves the amount by a cent, so that its first request finds nothing cached. */
const CHOICES: Record<'all' | 'most' | 'few', (round: number) => string> = {
  all: () => '',
  most: (round) => `amount_from=70000.${10 + round}`,
  few: (round) => `state=TX&loan_program=fix_and_flip&amount_from=2500000.${10 + round}`,
}
type Choice = keyof typeof CHOICES

const QUERY =
  'select state, status, count(*) as deals, sum(loan_amount) as amount from core.deal group by all'

/** Pages measured with every filter, and pages measured without one. */
const OF_CHOICE = ['/', '/portfolio', '/deals', `/sql?q=${encodeURIComponent(QUERY)}`]
const OF_ALL = ['/books', '/deals/<id>/received']

/** Milliseconds; CPU is user plus system time of this process and its children. */
interface Cost {
  wall: number
  cpu: number
}

/** The cost of a page by filter: of the first request with a new filter, and of the same request again. */
type Figures = {page: string; costs: Partial<Record<Choice, {first: Cost; again: Cost}>>}

/** Benchmarks pages of the workbench over a large history. With `--write`, updates `docs/benchmarks.md`. */
export async function benchPages(): Promise<void> {
  using root = makeFolder()
  const folder = dataFolderAt(join(root.path, 'data'))
  mkdirSync(folder.root)
  process.stderr.write(`${DEALS} deals …\n`)
  await writeLargeHistory(folder.warehouse, DEALS)
  const build = () => runScript('build-run.ts', [], {LOANTAPE_DATA_DIR: folder.root})
  build()
  // Most pages compare with the release before.
  await writeNight(folder.warehouse, 100)
  build()
  publishSection(renderSection(await measure(folder)))
}

async function measure(folder: ReturnType<typeof dataFolderAt>): Promise<Figures[]> {
  const beside = dirname(folder.root)
  // The first page and the books show what is not issued to an importer; this job names one.
  writeJobFile(beside, 'books', {steps: [{do: 'export', profiles: ['quickbooks'], period: 'previous'}]})
  const env = {
    LOANTAPE_DATA_DIR: folder.root,
    LOANTAPE_JOBS_DIR: beside,
    LOANTAPE_TAPE_KEY_FILE: join(beside, 'tape.key'),
  }
  const config = {...parseConfig(env, {readFile: () => ''}), webPort: 0, pageTimeoutSeconds: 600}
  using stateDb = openStateDb(folder.stateDb)
  requireTapeKey(config, folder, stateDb, createWorld())
  await using side = await startWeb(config, {stateDb, folder, listJobs: () => [], env}, createWorld())
  const open = async (path: string): Promise<Cost> => {
    const [startedAt, used] = [performance.now(), readCpuMs()]
    const answer = await fetch(side.url + path)
    const text = await answer.text()
    const cost = {wall: performance.now() - startedAt, cpu: readCpuMs() - used}
    const [failed] = /class="failed"[^>]*>[^<]*/.exec(text) ?? []
    if (answer.status !== 200 || failed !== undefined) throw new Error(`${path}: ${answer.status} ${failed}`)
    return cost
  }
  await using db = await openRelease(requireRelease(folder))
  const [id = ''] = await db.column(z.string(), 'select deal_id from core.deal limit 1')
  await open('/')
  const measureOne = async (path: string, choice: Choice) => {
    const [first, again]: [Cost[], Cost[]] = [[], []]
    for (let round = 0; round < ROUNDS; round += 1) {
      const query = CHOICES[choice](round)
      const address = `${path.replace('<id>', id)}${path.includes('?') ? '&' : '?'}${query}`
      first.push(await open(address))
      again.push(await open(address))
    }
    const costs = {first: least(first), again: least(again)}
    process.stderr.write(`${path} ${choice}: ${JSON.stringify(costs)}\n`)
    return costs
  }
  const figures: Figures[] = []
  for (const path of [...OF_CHOICE, ...OF_ALL]) {
    const {all, most, few} = CHOICES
    const choices = OF_CHOICE.includes(path) ? {all, most, few} : {all}
    const one: Figures = {page: path.replace(/\?.*/, ''), costs: {}}
    for (const choice of Object.keys(choices) as Choice[]) one.costs[choice] = await measureOne(path, choice)
    figures.push(one)
  }
  return figures
}

const least = (costs: readonly Cost[]): Cost => ({
  wall: Math.min(...costs.map(({wall}) => wall)),
  cpu: Math.min(...costs.map(({cpu}) => cpu)),
})

/** Returns the CPU time in ms of this process and its running children: the engine runs in them. */
function readCpuMs(): number {
  const ticks = readdirSync('/proc')
    .filter((pid) => /^\d+$/.test(pid))
    .reduce((sum, pid) => {
      try {
        const [, rest = ''] = readFileSync(`/proc/${pid}/stat`, 'utf8').split(') ')
        const fields = rest.split(' ')
        const isOurs = pid === String(process.pid) || fields[1] === String(process.pid)
        return isOurs ? sum + Number(fields[11]) + Number(fields[12]) : sum
      } catch {
        // The process has ended.
        return sum
      }
    }, 0)
  return ticks * 10
}

const seconds = (cost: Cost | undefined, part: keyof Cost = 'wall') =>
  cost === undefined ? '' : (cost[part] / 1000).toFixed(2)

function renderSection(figures: readonly Figures[]): string {
  const rows = figures.map(({page, costs: {all, most, few}}) => {
    const cells = [all?.again, most?.first, few?.first].map((cost) => seconds(cost))
    return `| \`${page}\` | ${[...cells, seconds(most?.first, 'cpu')].join(' | ')} |`
  })
  return `## A page

\`npm run bench pages -- --write\`, ${availableParallelism()} cores, ${DEALS.toLocaleString('en')} deals, fastest of ${ROUNDS} rounds: all deals, and a
new filter that keeps nearly all, or few. One in a hundred has changed since the release before.

| page | all | most | few | CPU, most |
|---|---|---|---|---|
${rows.join('\n')}

`
}
