import {z} from 'zod'
import {inLedgerTransaction, type Ledger} from './ledger.ts'

const answerRow = z.object({status: z.number(), answers: z.number()})

/** Adds the answers a run got from its source, by HTTP status, to those of all runs. */
export function addSourceAnswers(ledger: Ledger, answers: ReadonlyMap<number, number>): void {
  if (answers.size === 0) return
  inLedgerTransaction(ledger, () => {
    const add = ledger.db.prepare(
      `insert into source_answer (status, answers) values (?, ?)
       on conflict (status) do update set answers = answers + excluded.answers`,
    )
    for (const [status, count] of answers) add.run(status, count)
  })
}

/** How often sources answered with each HTTP status, over all runs. */
export function listSourceAnswers({db}: Ledger): {status: number; answers: number}[] {
  return db
    .prepare('select status, answers from source_answer order by status')
    .all()
    .map((row) => answerRow.parse(row))
}
