import type {CliCommand} from './command.ts'

/** What makes a command of an empty one. */
type Add = (command: CliCommand) => void

/** Every command in the order of the help: what it does in a line, and where it stands; none is loaded before it is needed. */
export const COMMANDS: Record<string, [description: string, load: () => Promise<Add>]> = {
  demo: [
    'everything on a local service with a synthetic portfolio, in ./demo-data; needs nothing else',
    async () => (await import('./demo.ts')).addDemo,
  ],
  sync: [
    'walk the source, load what changed, build, check and release the portfolio tables',
    async () => (await import('./sync.ts')).addSync,
  ],
  build: [
    'build and check a release without walking; only a plain build moves `current`',
    async () => (await import('./build.ts')).addBuild,
  ],
  export: [
    'write a release, or the journal of a month, as files with a manifest',
    async () => (await import('./export.ts')).addExport,
  ],
  period: [
    'accounting months: list, close, reopen, remap, true-up',
    async () => (await import('./period.ts')).addPeriod,
  ],
  accounting: [
    'the accounts that journals are booked to',
    async () => (await import('./accounting.ts')).addAccounting,
  ],
  publish: ['copy a release to where others query it', async () => (await import('./publish.ts')).addPublish],
  run: ['run one job of jobs/ now', async () => (await import('./run.ts')).addRun],
  jobs: ['the jobs there are', async () => (await import('./jobs.ts')).addJobs],
  serve: [
    'run every job when it is due, and the web side, until stopped',
    async () => (await import('./serve.ts')).addServe,
  ],
  events: ['what webhooks have brought', async () => (await import('./events.ts')).addEvents],
  query: [
    'SQL over a release, read-only; tables are named core.deal, mart.portfolio_summary, …',
    async () => (await import('./query.ts')).addQuery,
  ],
  diff: [
    'which deals and fields moved the totals from one release to another',
    async () => (await import('./diff.ts')).addDiff,
  ],
  report: ['the portfolio report as one HTML page', async () => (await import('./pages.ts')).addReport],
  docs: [
    'the data dictionary and model graph as one HTML page',
    async () => (await import('./pages.ts')).addDocs,
  ],
  quarantine: [
    'the records that could not be read, kept whole on their tapes',
    async () => (await import('./quarantine.ts')).addQuarantine,
  ],
  tape: ['what came in from outside, as it came', async () => (await import('./tape.ts')).addTape],
  verify: [
    'examine everything that is kept: tapes, certificates, current release, batches',
    async () => (await import('./verify.ts')).addVerify,
  ],
  trace: [
    'where what is known of a deal comes from: each version with the record as the source sent it; or which deals are behind a figure',
    async () => (await import('./trace.ts')).addTrace,
  ],
  evidence: [
    'write a folder with which an auditor checks a release or a batch without loantape',
    async () => (await import('./evidence.ts')).addEvidence,
  ],
  backup: [
    'copy everything that cannot be built again, each file compared with what it was copied from',
    async () => (await import('./backup.ts')).addBackup,
  ],
  rebuild: [
    'compute the warehouse anew from the tapes and say in what it differs; change nothing',
    async () => (await import('./rebuild.ts')).addRebuild,
  ],
  restore: [
    'bring a backup back into an empty data folder',
    async () => (await import('./backup.ts')).addRestore,
  ],
  prune: [
    'remove releases, batches, tapes and what old records in quarantine held, beyond what the settings keep',
    async () => (await import('./prune.ts')).addPrune,
  ],
  status: [
    'last runs, last certificate and current release; exit 1 when the last success is too old',
    async () => (await import('./status.ts')).addStatus,
  ],
  doctor: [
    'check configuration, source, data folder, models and release; exit 1 when something is wrong',
    async () => (await import('./doctor.ts')).addDoctor,
  ],
  explain: [
    'what an error means by its code: what is kept, what to do',
    async () => (await import('./explain.ts')).addExplain,
  ],
  config: ['the effective settings, secrets masked', async () => (await import('./config.ts')).addConfig],
  service: [
    'run the local Deal Financing Service with a synthetic portfolio',
    async () => (await import('./service.ts')).addService,
  ],
  push: ['send records to the Deal Financing Service', async () => (await import('./push.ts')).addPush],
}
