import {z} from 'zod'
import {inLedgerTransaction, type Ledger} from './ledger.ts'

/** Adds the answers a run got from its source, by HTTP status, to those of all runs. */
export function addSourceAnswers(ledger: Ledger, answers: ReadonlyMap<number, number>): void {
  if (answers.size === 0) return
  inLedgerTransaction(ledger, () => {
    for (const answer of answers) {
      ledger.run(
        `insert into source_answer (status, answers) values (?, ?)
         on conflict (status) do update set answers = answers + excluded.answers`,
        answer,
      )
    }
  })
}

/** How often sources answered with each HTTP status, over all runs. */
export function listSourceAnswers(ledger: Ledger): {status: number; answers: number}[] {
  return ledger.all(
    z.object({status: z.number(), answers: z.number()}),
    'select status, answers from source_answer order by status',
  )
}
