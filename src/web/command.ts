import {type ChildProcess, fork} from 'node:child_process'
import {extname, join} from 'node:path'
import {type Place, passLogOn, stopWith} from '../process.ts'

const ENTRY = join(import.meta.dirname, `../main${extname(import.meta.filename)}`)
const MOST_PRINTED = 64 * 1024 * 1024

/** How a command ended, and its own words for people. */
export interface CommandEnd {
  /** Null of one that was killed. */
  exitCode: number | null
  words: string
}

/**
 * Carries a command of loantape out to its end, however long that takes; its log goes where ours goes.
 *
 * @param signal asks it to stop; what is stored by then is kept
 */
export async function carryOutCommand(
  args: readonly string[],
  {signal, ...place}: {signal: AbortSignal} & SomePlace,
): Promise<CommandEnd> {
  const child = fork(ENTRY, args, {stdio: ['ignore', 'pipe', 'pipe', 'ipc'], ...place})
  const readLog = passLogOn(child)
  using _stopping = stopWith(child, signal)
  const {code, printed} = await readToEnd(child)
  if (code === 0) return {exitCode: code, words: printed.trim()}
  const lines = readLog().trim().split('\n')
  const last = lines.findLastIndex((line) => line.startsWith(COMPLAINT))
  const complaint = lines.slice(last).join('\n').slice(COMPLAINT.length)
  return {exitCode: code, words: last === -1 ? 'It ended without a word; see the log.' : complaint}
}

type SomePlace = {[part in keyof Place]?: Place[part] | undefined}

const COMPLAINT = 'loantape: '

async function readToEnd(child: ChildProcess): Promise<{code: number | null; printed: string}> {
  const ended = new Promise<number | null>((resolve, reject) => {
    child.once('error', reject)
    child.once('close', resolve)
  })
  const chunks: Buffer[] = []
  let length = 0
  child.stdout?.on('data', (chunk: Buffer) => {
    length += chunk.length
    if (length <= MOST_PRINTED) chunks.push(chunk)
    else child.kill('SIGKILL')
  })
  return {code: await ended, printed: Buffer.concat(chunks).toString()}
}
