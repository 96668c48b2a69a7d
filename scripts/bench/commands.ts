import {readdirSync, statSync} from 'node:fs'
import {availableParallelism} from 'node:os'
import {join} from 'node:path'
import {runProcess} from './run-process.ts'
import {COMPILE_CACHE, envOf, makeFolder, middleOf, publishSection, startServer} from './set-up.ts'

const DEALS = 100_000
const ROUNDS = 5
const MAIN = join(import.meta.dirname, '../../bin/loantape.js')

/** The nights to sync: the first stores every deal, the second a change in one deal of a hundred. */
const NIGHTS = ['2026-03-02T23:00:00Z', '2026-03-03T23:00:00Z']

const COMMANDS: string[][] = [['--help'], ['query', 'select 1'], ['status'], ['verify'], ['rebuild']]

/** Times of nights and commands, and the bytes of the answers and of the tapes. */
type Figures = Awaited<ReturnType<typeof measure>>

/** Benchmarks commands over two nights of a large portfolio. With `--write`, updates `docs/benchmarks.md`. */
export async function benchCommands(): Promise<void> {
  publishSection(renderSection(await measure()))
}

async function measure() {
  using server = await startServer(DEALS, 0)
  const {url} = server
  using root = makeFolder()
  const data = join(root.path, 'data')
  const around = {PATH: process.env.PATH ?? '', HOME: root.path, NODE_COMPILE_CACHE: COMPILE_CACHE}
  const run = (args: string[], env: Record<string, string> = {}) =>
    runProcess([process.execPath, ...args], {env: {...around, ...envOf(url, data), ...env}})
  const nights: number[] = []
  let wireBytes = 0
  for (const now of NIGHTS) {
    wireBytes += await countBytes(url)
    nights.push(await middleOf(1, () => run([MAIN, 'sync'], {LOANTAPE_NOW: now})))
    await fetch(`${url}/change`)
  }
  const commands: {words: string; ms: number}[] = []
  for (const args of COMMANDS) {
    process.stderr.write(`${args.join(' ')} …\n`)
    commands.push({words: args.join(' '), ms: await middleOf(ROUNDS, () => run([MAIN, ...args]))})
  }
  const node = await middleOf(ROUNDS, () => run(['-e', '0']))
  return {node, nights, commands, wireBytes, tapeBytes: sizeOf(join(data, 'tape'))}
}

/** Sums the bytes of all pages. */
async function countBytes(url: string): Promise<number> {
  let bytes = 0
  for (let cursor: string | null = 'c0'; cursor; ) {
    const text: string = await (await fetch(`${url}/v1/deals?cursor=${cursor}`)).text()
    bytes += Buffer.byteLength(text)
    cursor = JSON.parse(text).next_cursor
  }
  return bytes
}

function sizeOf(folder: string): number {
  const files = readdirSync(folder, {recursive: true, withFileTypes: true}).filter((file) => file.isFile())
  return files.reduce((sum, {parentPath, name}) => sum + statSync(join(parentPath, name)).size, 0)
}

const seconds = (ms: number) => `${(ms / 1000).toFixed(2)} s`
const megabytes = (bytes: number) => `${(bytes / 1e6).toFixed(1)} MB`

function renderSection({node, nights, commands, wireBytes, tapeBytes}: Figures): string {
  const [first = 0, second = 0] = nights
  const rows = [{words: '(node itself)', ms: node}, ...commands].map(
    ({words, ms}) => `| \`${words}\` | ${seconds(ms)} |`,
  )
  const rebuild = commands.find(({words}) => words === 'rebuild')?.ms ?? 0
  return `## Commands, tape and rebuild

\`npm run bench commands -- --write\`, ${availableParallelism()} cores, ${DEALS.toLocaleString('en')} deals, two nights; the middle of ${ROUNDS} runs.

| command | time |
|---|---|
${rows.join('\n')}

The two nights took ${seconds(first)} and ${seconds(second)}; \`rebuild\` ${(rebuild / (first + second)).toFixed(2)} of that.
The tapes hold ${megabytes(wireBytes)} of answers in ${megabytes(tapeBytes)}: ${((100 * tapeBytes) / wireBytes).toFixed(1)} %.

`
}
