import type {Command} from 'commander'
import {parseDateOption} from '../config.ts'
import {groupThousands} from '../money.ts'
import {type EvidenceResult, writeEvidence} from '../pipeline/evidence.ts'
import type {Cli, CommonOptions} from './context.ts'

/** `loantape evidence`. */
export function addEvidence(program: Command, cli: Cli): void {
  program
    .command('evidence')
    .description('write a folder with which an auditor checks a release or a batch without loantape')
    .argument('<release or batch>', 'its id, or current')
    .argument('<dir>', 'a folder that is not there yet')
    .option(
      '--from <date>',
      'with the answers of all tapes from this business date on, not of the last walk alone',
    )
    .action(async (of: string, to: string, _options, command: Command) => {
      const options = command.optsWithGlobals<CommonOptions & {from?: string}>()
      const from = options.from === undefined ? undefined : parseDateOption('--from', options.from)
      const result = await writeEvidence(cli.readConfig(options), {of, to, from})
      cli.printResult(options, result, renderEvidence)
    })
}

function renderEvidence({dir, release_id, batch_id, tapes, lines, answers}: EvidenceResult): string {
  const count = (number: number) => groupThousands(String(number))
  return [
    `Evidence of ${batch_id === null ? '' : `batch ${batch_id} of `}release ${release_id}: ${dir}`,
    `${count(lines)} lines of ${count(tapes)} tapes, ${count(answers)} answers as they came. It holds deals in plain: give it to nobody else.`,
    `\`python3 ${dir}/check.py\` checks it, on any machine.`,
  ].join('\n')
}
