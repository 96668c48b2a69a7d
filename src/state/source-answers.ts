import {z} from 'zod'
import {inStateTransaction, type StateDb} from './state-db.ts'

/** Adds the answers a run got from its source, by HTTP status, to those of all runs. */
export function addSourceAnswers(stateDb: StateDb, answers: ReadonlyMap<number, number>): void {
  if (answers.size === 0) return
  inStateTransaction(stateDb, () => {
    for (const answer of answers) {
      stateDb.run(
        `insert into source_answer (status, answers) values (?, ?)
         on conflict (status) do update set answers = answers + excluded.answers`,
        answer,
      )
    }
  })
}

/** How often sources answered with each HTTP status, over all runs. */
export function listSourceAnswers(stateDb: StateDb): {status: number; answers: number}[] {
  return stateDb.all(
    z.object({status: z.number(), answers: z.number()}),
    'select status, answers from source_answer order by status',
  )
}
