import {quantity} from '../money.ts'
import {type EvidenceResult, writeEvidence} from '../pipeline/evidence.ts'
import type {Call, CliCommand} from './command.ts'
import {dateOption} from './options.ts'

/** `loantape evidence`. */
export default function addEvidence(command: CliCommand): void {
  command
    .description('write a folder with which an auditor checks a release or a batch without loantape')
    .example('evidence current evidence-june')
    .argument('<release or batch>', 'its id, or current')
    .argument('<dir>', 'a folder that is not there yet')
    .addOption(
      dateOption(
        '--from <date>',
        'with the answers of all tapes from this business date on, not of the last walk alone',
      ),
    )
    .option(
      '--all-fields',
      'answers as they came, with fields that the contract does not know: they may name people',
    )
    .does(
      ({config, options}: Call<{from?: string; allFields?: boolean}>, of: string, to: string) =>
        writeEvidence(config, {of, to, ...options}),
      renderEvidence,
    )
}

function renderEvidence({dir, release_id, batch_id, tapes, lines, answers, reduced}: EvidenceResult): string {
  return [
    `Evidence of ${batch_id === null ? '' : `batch ${batch_id} of `}release ${release_id}: ${dir}`,
    `${quantity(lines, 'line')} of ${quantity(tapes, 'tape')}, ${quantity(answers, 'answer')} ${reduced ? 'without the fields that the contract does not know' : 'as they came'}. It holds deals in plain: give it to nobody else.`,
    `\`python3 ${dir}/check.py\` checks it, on any machine.`,
  ].join('\n')
}
