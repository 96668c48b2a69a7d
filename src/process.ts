import {codeOf} from './errors.ts'

/** Whether a process with this id runs on this machine. */
export function isProcessAlive(pid: number): boolean {
  try {
    process.kill(pid, 0)
    return true
  } catch (error) {
    return codeOf(error) === 'EPERM'
  }
}

/**
 * Whether another process of this machine has this id. What bears our own was left by one before us: a container begins
 * to count at 1 each time.
 */
export function isOtherProcess(pid: number): boolean {
  return pid !== process.pid && isProcessAlive(pid)
}
