import {fileURLToPath} from 'node:url'
import {type Ended, KILL_AT, startProcess} from '../support/lab.ts'

const KILLED_RUN = fileURLToPath(new URL('./killed-run.ts', import.meta.url))

export interface Reached {
  step: string
  at: number
}

export interface Trouble {
  /** Kills it the `nth` time it reaches a step, before a write (from 1; 0 only counts them), or this many ms after its first step. */
  kill?: {step: string; nth: number} | {write: number} | {afterMs: number} | undefined
  diskKib?: number | undefined
}

export const codeIn = (stderr: string): string => /\[([A-Z\d_]+)\]\s*$/.exec(stderr)?.[1] ?? ''

/** Runs a command line, or several separated by `then`, in a separate process whose business clock is stopped. */
export async function runThere(
  args: readonly string[],
  {env, at}: {env: Record<string, string>; at: string},
  {kill = {afterMs: Number.POSITIVE_INFINITY}, diskKib}: Trouble = {},
): Promise<Ended & {error: string; isKilled: boolean; reached: Reached[]; writes: number}> {
  const settings = {
    ...env,
    LOANTAPE_NOW: at,
    LOANTAPE_LOG_LEVEL: 'silent',
    ...('step' in kill && {KILL_STEP: kill.step, KILL_NTH: String(kill.nth)}),
    ...('write' in kill && {KILL_AT: String(kill.write), KILL_COUNTED: '1'}),
    // At its end Node would write the cache, beyond the disk's limit.
    ...(diskKib !== undefined && {NODE_COMPILE_CACHE: ''}),
  }
  const preloaded = 'write' in kill ? ['--import', KILL_AT] : []
  const command = [process.execPath, ...preloaded, KILLED_RUN, ...args]
  const onSmallDisk = `trap '' XFSZ; ulimit -f ${(diskKib ?? 0) * 2}; exec "$0" "$@"`
  using started = startProcess(
    diskKib === undefined ? command : ['sh', '-c', onSmallDisk, ...command],
    settings,
  )
  let timer: NodeJS.Timeout | undefined
  if ('afterMs' in kill && Number.isFinite(kill.afterMs))
    started.process.stdout.once('data', () => {
      timer = setTimeout(() => started.process.kill('SIGKILL'), kill.afterMs)
    })
  const ended = await started.ended
  clearTimeout(timer)
  const steps = ended.stdout.matchAll(/^reached (\d+\.?\d*) (.+)$/gm)
  return {
    ...ended,
    error: codeIn(ended.stderr),
    isKilled: ended.signal === 'SIGKILL',
    reached: [...steps].map(([, time, step = '']) => ({step, at: Number(time)})),
    writes: Number(/^writes (\d+)$/m.exec(ended.stdout)?.[1]),
  }
}
