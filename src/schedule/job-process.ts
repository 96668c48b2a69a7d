import {spawn} from 'node:child_process'
import {type Place, passLogOn, stopWith} from '../process.ts'
import type {JobRun} from '../state/job-runs.ts'
import type {World} from '../types.ts'
import type {ProcessEnd} from './scheduler.ts'

/**
 * Carries out a run in a process of its own: what it leaks, breaks or dies of ends with it. Its log goes where ours
 * goes; when the world's signal aborts it is asked to stop, and stopped if it does not.
 *
 * @param args the words of the command line before the claim
 * @param onStarted is told the process at once
 * @param place its environment and working folder; by default this process's
 */
export async function startJobProcess(
  run: JobRun,
  {
    args,
    onStarted,
    place,
  }: {args: readonly string[]; onStarted: (pid: number) => void; place?: Place | undefined},
  world: World,
): Promise<ProcessEnd> {
  const claim = ['--claim', `${run.job_run_id}.${run.attempt}`]
  const entry = process.argv[1] ?? ''
  const child = spawn(process.execPath, [...process.execArgv, entry, ...args, ...claim, '--json'], {
    stdio: ['ignore', 'ignore', 'pipe'],
    ...place,
  })
  const readLog = passLogOn(child)
  const ended = new Promise<ProcessEnd>((resolve, reject) => {
    child.once('error', reject)
    child.once('close', (code, signal) => resolve({code, signal, log: readLog()}))
  })
  using _stopping = stopWith(child, world.signal)
  try {
    if (child.pid !== undefined) onStarted(child.pid)
    return await ended
  } catch (error) {
    child.kill('SIGKILL')
    throw error
  }
}
