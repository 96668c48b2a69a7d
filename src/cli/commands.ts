import type {CliCommand} from './command.ts'

/** Every command in the order of the help: what it does, and the file that makes it of an empty one. */
export const COMMANDS: Record<
  string,
  [summary: string, load: () => Promise<{default: (command: CliCommand) => void}>]
> = {
  demo: ['everything on a local service with a synthetic portfolio', () => import('./demo.ts')],
  sync: ['walk the source, load what changed, build, check and release', () => import('./sync.ts')],
  build: ['build and check a release without walking', () => import('./build.ts')],
  test: ['run the tests of your own models', () => import('./test.ts')],
  export: ['write a release, or the journal of a month, as files', () => import('./export.ts')],
  period: ['accounting months: list, close, reopen, remap, true-up', () => import('./period.ts')],
  accounting: ['the accounts that journals are booked to', () => import('./accounting.ts')],
  publish: ['copy a release to where others query it', () => import('./publish.ts')],
  run: ['run one job of jobs/ now', () => import('./run.ts')],
  jobs: ['the jobs there are', () => import('./jobs.ts')],
  serve: ['run every job when it is due, and the web side', () => import('./serve.ts')],
  events: ['what webhooks have brought', () => import('./events.ts')],
  query: ['SQL over a release, read-only', () => import('./query.ts')],
  diff: ['which deals and fields moved the totals between two releases', () => import('./diff.ts')],
  report: ['the portfolio report as one HTML page', () => import('./report.ts')],
  docs: ['the data dictionary and model graph as one HTML page', () => import('./docs.ts')],
  quarantine: ['the records that could not be read', () => import('./quarantine.ts')],
  tape: ['what came in from outside, as it came', () => import('./tape.ts')],
  verify: ['examine everything that is kept', () => import('./verify.ts')],
  trace: ['where what is known of a deal or a figure comes from', () => import('./trace.ts')],
  evidence: ['what an auditor needs to check a release or a batch', () => import('./evidence.ts')],
  backup: ['copy everything that cannot be built again', () => import('./backup.ts')],
  rebuild: ['compute the warehouse anew from the tapes and compare', () => import('./rebuild.ts')],
  restore: ['bring a backup back into an empty data folder', () => import('./restore.ts')],
  prune: ['remove what is older than the settings keep', () => import('./prune.ts')],
  status: ['last runs, last certificate and current release', () => import('./status.ts')],
  doctor: ['check configuration, source, data folder, models and release', () => import('./doctor.ts')],
  explain: ['what an error means by its code', () => import('./explain.ts')],
  config: ['the effective settings, secrets masked', () => import('./config.ts')],
  service: ['run the local Deal Financing Service with synthetic deals', () => import('./service.ts')],
  push: ['send records to the Deal Financing Service', () => import('./push.ts')],
}
