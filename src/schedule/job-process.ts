import {type ChildProcess, spawn} from 'node:child_process'
import type {JobRun} from '../state/job-runs.ts'
import type {World} from '../types.ts'
import type {ProcessEnd} from './scheduler.ts'

/** From SIGTERM to SIGKILL, so that the whole is over within the ten seconds container engines give. */
const PATIENCE_MS = 8_000

/**
 * Carries out a run in a process of its own: what it leaks, breaks or dies of ends with it. Its log goes where ours
 * goes; when the world's signal aborts it is asked to stop, and stopped if it does not.
 *
 * @param args the words of the command line before the claim
 * @param onStarted is told the process at once
 */
export async function startJobProcess(
  run: JobRun,
  {args, onStarted}: {args: readonly string[]; onStarted: (pid: number) => void},
  world: World,
): Promise<ProcessEnd> {
  const claim = ['--claim', `${run.job_run_id}.${run.attempt}`]
  const entry = process.argv[1] ?? ''
  const child = spawn(process.execPath, [...process.execArgv, entry, ...args, ...claim, '--json'], {
    stdio: ['ignore', 'ignore', 'inherit'],
  })
  const ended = new Promise<ProcessEnd>((resolve, reject) => {
    child.once('error', reject)
    child.once('exit', (code, signal) => resolve({code, signal}))
  })
  const stop = () => stopProcess(child)
  if (world.signal.aborted) stop()
  world.signal.addEventListener('abort', stop)
  try {
    if (child.pid !== undefined) onStarted(child.pid)
    return await ended
  } catch (error) {
    child.kill('SIGKILL')
    throw error
  } finally {
    world.signal.removeEventListener('abort', stop)
  }
}

function stopProcess(child: ChildProcess): void {
  child.kill('SIGTERM')
  const last = setTimeout(() => child.kill('SIGKILL'), PATIENCE_MS)
  child.once('exit', () => clearTimeout(last))
}
