import {fork} from 'node:child_process'
import {once} from 'node:events'
import {mkdtempDisposableSync, readFileSync, writeFileSync} from 'node:fs'
import {tmpdir} from 'node:os'
import {join} from 'node:path'
import {z} from 'zod'

/** The compile cache of measured processes. */
export const COMPILE_CACHE: string = join(tmpdir(), 'node-compile-cache')

/** Makes a folder that is removed when it goes out of scope. */
export const makeFolder = () => mkdtempDisposableSync(join(tmpdir(), 'loantape-bench-'))

/** Environment in which loantape reads only the list of the page server at this address, practically without a rate limit. */
export const envOf = (url: string, dataDir: string) => ({
  LOANTAPE_BASE_URL: `${url}/v1`,
  LOANTAPE_API_KEY: 'sk_test_bench',
  LOANTAPE_DATA_DIR: dataDir,
  LOANTAPE_RATE_PER_SECOND: '100000',
  LOANTAPE_DETAIL: 'off',
})

/** Starts the page server in a separate process; disposing it ends the process. */
export async function startServer(deals: number, delayMs: number): Promise<{url: string} & Disposable> {
  const server = fork(join(import.meta.dirname, 'page-server.ts'), [String(deals), String(delayMs)])
  const [message] = await once(server, 'message')
  const {url} = z.object({url: z.string()}).parse(message)
  return {url, [Symbol.dispose]: () => void server.kill()}
}

/** Returns the median time of several runs, ms. @param warmUps runs before them that do not count */
export async function middleOf(rounds: number, run: () => unknown, warmUps = 0): Promise<number> {
  const times: number[] = []
  for (let round = -warmUps; round < rounds; round += 1) {
    const startedAt = performance.now()
    await run()
    if (round >= 0) times.push(performance.now() - startedAt)
  }
  return times.toSorted((one, other) => one - other)[Math.floor(rounds / 2)] ?? 0
}

const PAGE = join(import.meta.dirname, '../../docs/benchmarks.md')

/** Prints a section of `docs/benchmarks.md`, from its `## ` heading on; with `--write`, also replaces the section of that heading. */
export function publishSection(section: string): void {
  process.stdout.write(section)
  if (!process.argv.includes('--write')) return
  const heading = headingOf(section)
  const sections = readFileSync(PAGE, 'utf8')
    .split(/^(?=## )/m)
    .map((old) => (headingOf(old) === heading ? section : old))
  writeFileSync(PAGE, sections.join(''))
}

function headingOf(section: string): string {
  return section.slice(0, section.indexOf('\n'))
}
