import {join} from 'node:path'
import {quantity} from '../money.ts'
import type {RatesResult} from '../pipeline/rates.ts'
import type {Release} from '../release/manifest.ts'

import {requireJob} from '../schedule/job.ts'
import {type Claim, performJob, type StepResult} from '../schedule/run-job.ts'
import {writeFileAtomically} from '../warehouse/atomic-file.ts'
import {renderBackup} from './backup.ts'
import {renderWarnings} from './build.ts'
import type {Call, CliCommand} from './command.ts'
import {renderBatch, renderDelivery} from './export.ts'
import {claimOption} from './options.ts'
import {renderPublished} from './publish.ts'
import {renderSync} from './sync.ts'
import {renderTerms} from './table.ts'

/** `loantape run`. */
export default function addRun(command: CliCommand): void {
  command
    .example('run nightly')
    .argument('<job>', 'such as nightly')
    .addOption(claimOption())
    .does(
      async ({config, options: {claim}, world}: Call<{claim?: Claim}>, name: string) =>
        performJob(config, {job: await requireJob(config, name), claim}, world, describeDay),
      ({steps}) => steps.map(renderStep).join('\n'),
    )
}

/** The figures of a release as text, and its report beside it. */
async function describeDay(release: Release): Promise<{title: string; words: string; file: string}> {
  // Only here: most jobs send none.
  const {describeMorning, renderReport} = await import('../web/report.ts')
  const file = join(release.dir, 'report.html')
  writeFileAtomically(file, await renderReport(release))
  return {...(await describeMorning(release)), file}
}

function renderStep(step: StepResult): string {
  if (step.do === 'sync') return renderSync(step.result)
  if (step.do === 'backup') return renderBackup(step.result)
  if (step.do === 'close_period') {
    const {period, outcome, terms} = step.result
    return outcome === 'not_due'
      ? `Period ${period}: not due today.`
      : `Period ${period}: ${outcome}.${renderTerms(terms)}`
  }
  if (step.do === 'build') {
    const {release_id, outcome, checks} = step.result
    return [`Release ${release_id}: ${outcome}.`, ...renderWarnings(checks)].join('\n')
  }
  if (step.do === 'ingest_rates') return renderRates(step.result)
  if (step.do === 'deliver') return step.result.map(renderDelivery).join('\n')
  if (step.do === 'publish') return renderPublished(step.result)
  return [...step.result.map(renderBatch), ...(step.deliveries ?? []).map(renderDelivery)].join('\n')
}

function renderRates({outcome, feeds}: RatesResult): string {
  if (outcome === 'not_configured') return 'Rates: no feeds in LOANTAPE_RATES_FILE; nothing was read.'
  const lines = feeds.map(({feed, outcome, rows, appended, known, empty, rejected, problems}) => {
    const counts = `${quantity(rows, 'row')}, ${appended} new, ${known} known, ${empty} without a value, ${rejected} rejected`
    return [`Rates of ${feed}: ${outcome === 'read' ? counts : 'not read'}.`, ...problems].join('\n  ')
  })
  return lines.join('\n')
}
