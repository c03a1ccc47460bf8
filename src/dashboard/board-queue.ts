import { BullMQAdapter } from '@bull-board/api/bullMQAdapter';
import type { JobStatus } from '@bull-board/api/typings/app';
import type { Job, Queue } from 'bullmq';
import { nextRunMs } from '../explain/explain.ts';
import { keyOf } from '../kube/resources.ts';
import { parseJob } from '../queue/contract.ts';
import type { QueueEntry } from '../queue/queues.ts';
import { readStatuses, type RunStatus } from '../queue/status.ts';
import type { RedisLink } from '../redis/connection.ts';
import { pathOf } from './object-page.ts';

/** States that no job of ours is ever in: their tabs would say that nothing fails. */
const UNUSED: readonly JobStatus[] = ['failed', 'waiting-children'];

/** A queue as Bull Board shows it: nobody acts there, and a job says why its object waits. */
export class BoardQueue extends BullMQAdapter {
  readonly #place: { readonly link: RedisLink; readonly prefix: string; readonly driver: string };

  constructor(
    queue: Queue,
    { kind, driver }: QueueEntry,
    place: { readonly link: RedisLink; readonly prefix: string },
  ) {
    super(queue, {
      readOnlyMode: true,
      externalJobUrl: ({ data, finishedOn }) => {
        const parsed = parseJob(data);
        const isShown = parsed.ok && !finishedOn && (kind === 'claim' || kind === 'volume');
        return isShown
          ? { displayText: 'Who has to act', href: pathOf({ kind, object: keyOf(parsed.key) }) }
          : { displayText: 'What is pending', href: '/' };
      },
    });
    this.#place = { ...place, driver };
    // A job's name is only its kind; show its object too.
    this.setFormatter('name', (job: { readonly data?: unknown }) => {
      const parsed = parseJob(job.data);
      return parsed.ok ? `${parsed.key.kind} ${keyOf(parsed.key)}` : parsed.reason;
    });
    // Without the copy of the claim.
    this.setFormatter('data', (data: unknown) => {
      const parsed = parseJob(data);
      return parsed.ok ? parsed.key : data;
    });
  }

  override getJobStatuses() {
    return super.getJobStatuses().filter((status) => !UNUSED.includes(status));
  }

  override async getJobs(...range: Parameters<BullMQAdapter['getJobs']>): Promise<Job[]> {
    return this.#explain(await super.getJobs(...range));
  }

  override async getJob(id: string): Promise<Job | undefined> {
    // Others may be names of BullMQ's keys.
    const job = JOB_ID.test(id) ? await super.getJob(id) : undefined;
    return job && (await this.#explain([job]))[0];
  }

  async #explain(jobs: readonly Job[]): Promise<Job[]> {
    const { link, ...place } = this.#place;
    const uids = jobs.map(({ data }) => uidOf(data));
    const statuses = await readStatuses(link.redis, place, uids);
    return jobs.map((job, i) => explainJob(job, statuses.get(uids[i] ?? '')));
  }
}

/** A UID, or the digest that a value of storage capacity has for one. */
const JOB_ID = /^[0-9a-f-]{16,}$/;

function uidOf(data: unknown): string {
  const parsed = parseJob(data);
  return parsed.ok ? parsed.key.uid : '';
}

/** Gives a job the reason of its object's status, which also a job has that waits without a
 * failure, and the time of its next run: Bull Board takes a delay for one since the job was added,
 * but it is one since the last run. Leaves out what is the same for all jobs of ours. */
function explainJob(job: Job, status: RunStatus | undefined): Job {
  const shown = job.toJSON();
  const { timestamp, opts, delay, finishedOn } = shown;
  const nextMs = nextRunMs(status, { isActive: false, delayMs: delay });
  const untilRunMs = nextMs === undefined ? delay : nextMs - timestamp;
  const isOver = Boolean(finishedOn);
  job.toJSON = () => ({
    ...shown,
    priority: 0,
    deduplicationId: '',
    attemptsStarted: 0,
    stacktrace: [],
    failedReason: isOver ? '' : (status?.reason ?? shown.failedReason),
    delay: untilRunMs,
    opts: { ...opts, delay: untilRunMs },
  });
  return job;
}
