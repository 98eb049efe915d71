//! The live view, which uses the whole terminal.

use std::io::IsTerminal;
use std::time::Duration;

use ata_observe::{Client, Snapshot, WorkerActivity, WorkerSnapshot, follow};
use ata_record::RunState;
use ata_types::seconds;
use ratatui::Frame;
use ratatui::buffer::Buffer;
use ratatui::crossterm::event::{Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers, poll, read};
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Modifier, Style};
use ratatui::symbols::Marker;
use ratatui::text::Line;
use ratatui::widgets::{Axis, Block, Cell, Chart, Dataset, Gauge, GraphType, Paragraph, Row, Table, TableState};
use tokio::sync::watch;

use super::text::{COLUMNS, by_importance, cells, current, facts, workers_title};
use super::{RunLocation, StatusOutput, location};
use crate::escape::is_unsafe;
use crate::failure::{Failure, require};

const INTERVAL: Duration = Duration::from_millis(500);
const CHART_LINES: u16 = 12;
const CHART_FROM_WIDTH: u16 = 100;
const WIDTHS: [u16; 12] = [18, 16, 10, 10, 16, 9, 6, 9, 12, 5, 9, 11];
/// The [`COLUMNS`] in the order of importance. As many are shown as fit.
const IMPORTANCE: [usize; 12] = [0, 3, 4, 2, 6, 8, 5, 9, 10, 11, 7, 1];
/// The height of the log, in lines, and the least height of the facts, on a screen with few lines.
const LOG_LINES: u16 = 7;
const FEW_LINES: u16 = 5;
/// The lines of the workers' table that are not workers: its frame and its header.
const AROUND_WORKERS: u16 = 3;
/// The height from which all facts and [`LOG_LINES`] fit: below it, the workers need the room.
const TALL: u16 = 32;

pub(super) async fn run(run: RunLocation) -> Result<(), Failure> {
    let message = || "--watch needs a terminal; without it, `ata status` prints the state once";
    require(std::io::stdout().is_terminal(), message)?;
    let mut source = WatchSource::new(run);
    let mut snapshot = source.snapshot().await?;
    let mut terminal = ratatui::init();
    let mut screen = Screen::default();
    let result = loop {
        if let Err(error) = terminal.draw(|frame| screen.draw(frame, &snapshot)) {
            break Err(Failure::internal(error));
        }
        match tokio::task::spawn_blocking(next_key).await.map_err(Failure::internal) {
            Ok(Ok(Some(key))) if is_end(key) => break Ok(()),
            Ok(Ok(Some(key))) => screen.scroll(key.code, snapshot.workers.len()),
            Ok(Ok(None)) => match source.snapshot().await {
                Ok(new) => (snapshot, screen.trouble) = (new, None),
                // The loop continues because a restarted coordinator is soon back.
                Err(failure) => screen.trouble = Some(failure.to_string()),
            },
            Ok(Err(error)) => break Err(Failure::internal(error)),
            Err(failure) => break Err(failure),
        }
    };
    ratatui::restore();
    result
}

enum WatchSource {
    Server(Client),
    Folder(watch::Receiver<RunState>),
}

impl WatchSource {
    fn new(run: RunLocation) -> Self {
        match run {
            RunLocation::Folder(folder) => Self::Folder(follow(folder.clone(), location::prices(&folder))),
            RunLocation::Server(client) => Self::Server(client),
        }
    }

    async fn snapshot(&mut self) -> Result<Snapshot, Failure> {
        match self {
            Self::Server(client) => match StatusOutput::fetch(client).await? {
                StatusOutput::Run(run) => Ok(*run),
                StatusOutput::Runs(runs) => {
                    runs.into_iter().next().ok_or_else(|| Failure::data("the server shows no run"))
                }
            },
            Self::Folder(state) => Ok(Snapshot::of(&state.borrow(), &[])),
        }
    }
}

/// Returns the next key, if one is pressed before the next update.
fn next_key() -> std::io::Result<Option<KeyEvent>> {
    if !poll(INTERVAL)? {
        return Ok(None);
    }
    match read()? {
        Event::Key(key) if key.kind != KeyEventKind::Release => Ok(Some(key)),
        _ => Ok(None),
    }
}

fn is_end(key: KeyEvent) -> bool {
    let is_interrupt = key.code == KeyCode::Char('c') && key.modifiers.contains(KeyModifiers::CONTROL);
    is_interrupt || matches!(key.code, KeyCode::Char('q') | KeyCode::Esc)
}

#[derive(Default)]
struct Screen {
    table: TableState,
    /// The reason why the snapshot is not current.
    trouble: Option<String>,
}

impl Screen {
    fn scroll(&mut self, key: KeyCode, workers: usize) {
        let at = self.table.offset();
        let last = workers.saturating_sub(1);
        *self.table.offset_mut() = match key {
            KeyCode::Down => (at + 1).min(last),
            KeyCode::Up => at.saturating_sub(1),
            KeyCode::PageDown => (at + 10).min(last),
            KeyCode::PageUp => at.saturating_sub(10),
            KeyCode::Home => 0,
            KeyCode::End => last,
            _ => at,
        };
    }

    fn draw(&mut self, frame: &mut Frame<'_>, snapshot: &Snapshot) {
        let facts = facts(snapshot);
        let is_tall = frame.area().height >= TALL;
        let has_chart = is_tall && frame.area().width >= CHART_FROM_WIDTH;
        let log_lines = if is_tall { LOG_LINES } else { FEW_LINES - 1 };
        let lines = facts.len() as u16 + 2;
        let around = 3 + log_lines + AROUND_WORKERS + snapshot.workers.len().min(usize::from(TALL)) as u16;
        let room = frame.area().height.saturating_sub(around).max(FEW_LINES);
        let lines = if is_tall { lines } else { lines.min(room) };
        let areas = Layout::vertical([
            Constraint::Length(1),
            Constraint::Length(1),
            Constraint::Length(if has_chart { CHART_LINES.max(lines) } else { lines }),
            Constraint::Min(4),
            Constraint::Length(log_lines),
            Constraint::Length(1),
        ]);
        let [top, progress, middle, workers, log, foot] = areas.areas(frame.area());
        frame.render_widget(Line::from(current(snapshot)).style(Modifier::BOLD), top);
        let done = snapshot.totals.progress as f64 / snapshot.run.iterations.max(1) as f64;
        frame.render_widget(Gauge::default().ratio(done.min(1.0)).use_unicode(true), progress);
        let share = if has_chart { 45 } else { 100 };
        let [left, right] = Layout::horizontal([Constraint::Percentage(share), Constraint::Fill(1)]).areas(middle);
        let lines: Vec<Line<'_>> = facts.iter().map(|(name, value)| format!("{name:<15}{value}").into()).collect();
        let name = snapshot.run.labels.name.as_ref().unwrap_or(&snapshot.run.run_id);
        let title = format!("{name}, policy {}", snapshot.run.policy);
        frame.render_widget(Paragraph::new(lines).block(Block::bordered().title(title)), left);
        if has_chart {
            draw_loss(frame, right, snapshot);
        }
        self.draw_workers(frame, workers, snapshot);
        draw_log(frame, log, snapshot);
        let keys = "up, down, page up, page down: workers    q: end";
        let text = self.trouble.as_deref().unwrap_or(keys);
        frame.render_widget(Line::from(text).style(Modifier::DIM), foot);
        disarm(frame.buffer_mut());
    }

    fn draw_workers(&mut self, frame: &mut Frame<'_>, area: Rect, snapshot: &Snapshot) {
        let style = |state: WorkerActivity| match state {
            WorkerActivity::Computing => Style::new().green(),
            WorkerActivity::Resting => Style::new().yellow(),
            WorkerActivity::Away | WorkerActivity::Expelled => Style::new().red(),
            WorkerActivity::Idle => Style::new(),
        };
        let columns = columns(area.width.saturating_sub(2));
        let row = |worker: &WorkerSnapshot| {
            let cells = cells(worker);
            Row::new(columns.iter().map(|column| Cell::from(cells[*column].clone()))).style(style(worker.state))
        };
        let widths = columns.iter().map(|column| Constraint::Min(WIDTHS[*column]));
        let title = workers_title(snapshot);
        let title = match title.split_once(';') {
            Some((counts, _)) if title.chars().count() + 2 > usize::from(area.width) => counts.to_owned(),
            _ => title,
        };
        let below = snapshot.workers.len().saturating_sub(usize::from(area.height.saturating_sub(AROUND_WORKERS)));
        *self.table.offset_mut() = self.table.offset().min(below);
        let table = Table::new(by_importance(snapshot).into_iter().map(row), widths)
            .header(Row::new(columns.iter().map(|column| COLUMNS[*column])).style(Modifier::BOLD))
            .block(Block::bordered().title(title));
        frame.render_stateful_widget(table, area, &mut self.table);
    }
}

/// Returns the most important of the [`COLUMNS`] that fit into this width, from left to right.
fn columns(width: u16) -> Vec<usize> {
    let mut left = width + 1;
    let mut fits = IMPORTANCE.to_vec();
    fits.retain(|column| {
        let fits = WIDTHS[*column] < left;
        left -= if fits { WIDTHS[*column] + 1 } else { 0 };
        fits
    });
    fits.sort_unstable();
    fits
}

/// Removes characters that control the terminal from the cells. The widgets themselves omit only control characters.
fn disarm(screen: &mut Buffer) {
    for cell in screen.content.iter_mut().filter(|cell| cell.symbol().contains(is_unsafe)) {
        let safe: String = cell.symbol().chars().filter(|c| !is_unsafe(*c)).collect();
        cell.set_symbol(&safe);
    }
}

fn draw_loss(frame: &mut Frame<'_>, area: Rect, snapshot: &Snapshot) {
    let points = snapshot.steps.points.iter().map(|point| (point.iteration, point.loss));
    let points: Vec<(f64, f64)> = points.filter(|(_, loss)| !loss.is_nan()).collect();
    let largest = points.iter().map(|(_, loss)| *loss).fold(0.0, f64::max).max(f64::MIN_POSITIVE);
    let last = points.last().map_or(1.0, |(iteration, _)| *iteration);
    let dataset = Dataset::default().marker(Marker::Braille).graph_type(GraphType::Line).data(&points);
    let labels = |end: String| [Line::from("0"), Line::from(end)];
    let chart = Chart::new(vec![dataset])
        .block(Block::bordered().title("Training loss"))
        .x_axis(Axis::default().bounds([0.0, last]).labels(labels(format!("{last}"))))
        .y_axis(Axis::default().bounds([0.0, largest]).labels(labels(format!("{largest:.2}"))));
    frame.render_widget(chart, area);
}

fn draw_log(frame: &mut Frame<'_>, area: Rect, snapshot: &Snapshot) {
    let lines = &snapshot.log.lines;
    let last = lines.len().saturating_sub(usize::from(area.height.saturating_sub(2)));
    let lines: Vec<Line<'_>> =
        lines[last..].iter().map(|line| format!("{:>8}  {}", seconds(line.time_s), line.text).into()).collect();
    frame.render_widget(Paragraph::new(lines).block(Block::bordered().title("Events")), area);
}

#[cfg(test)]
mod tests {
    use ata_observe::SnapshotPhase;
    use ata_record::RunEvent;
    use ata_types::WorkerId;
    use ratatui::Terminal;
    use ratatui::backend::TestBackend;
    use ratatui::buffer::Cell;

    use super::*;

    fn join(state: &mut RunState, slot: usize, name: &str) {
        let (name, device) = (name.to_owned(), name.to_owned());
        state.apply(&RunEvent::Join {
            time_s: 0.0,
            worker: WorkerId::from_slot(slot),
            name,
            device,
            machine: String::new(),
        });
    }

    fn workers(count: usize) -> Snapshot {
        let mut state = RunState::default();
        (0..count).for_each(|slot| join(&mut state, slot, &format!("worker-{}", slot + 1)));
        Snapshot::of(&state, &[])
    }

    fn drawn(screen: &mut Screen, snapshot: &Snapshot, width: u16, height: u16) -> TestBackend {
        let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
        terminal.draw(|frame| screen.draw(frame, snapshot)).unwrap();
        terminal.backend().clone()
    }

    #[test]
    fn a_run_fits_on_a_screen() {
        let snapshot = workers(40);
        let mut screen = Screen::default();
        for (width, height) in [(120, 40), (80, 24), (20, 5)] {
            let text = drawn(&mut screen, &snapshot, width, height).to_string();
            assert!(height < 40 || text.contains("worker-3") && text.contains("Training loss"), "{text}");
        }
        screen.scroll(KeyCode::End, snapshot.workers.len());
        let last = drawn(&mut screen, &snapshot, 80, 24).to_string();
        assert!((32..=40).all(|number| last.contains(&format!("worker-{number} "))), "the last page is full: {last}");
    }

    /// At any width, the line of changing values and the columns of the table are complete.
    #[test]
    fn narrow_screens_have_what_matters() {
        let mut snapshot = workers(1);
        (snapshot.phase, snapshot.run.iterations) = (SnapshotPhase::Training, 200);
        let totals = &mut snapshot.totals;
        (totals.progress, totals.runtime_s) = (150, 3.0);
        (totals.steps.first_loss, totals.steps.last_loss, totals.test_accuracy) = (Some(4.6), Some(0.125), Some(0.9));
        let current = "training, iteration 150 of 200, 1s left, loss 0.125";
        let mut screen = Screen::default();
        for (width, has_chart, all) in [(60, false, false), (80, false, false), (120, true, false), (200, true, true)] {
            let text = drawn(&mut screen, &snapshot, width, 40).to_string();
            let lines = [current, "0.125, 4.600 in the first iteration", "3.00 s, ", "mean time (95 %)", "tasks"];
            assert!(lines.iter().all(|line| text.contains(line)), "{width}: {text}");
            assert_eq!(text.contains("Training loss"), has_chart, "{width}: {text}");
            assert_eq!(COLUMNS.iter().all(|column| text.contains(column)), all, "{width}: {text}");
        }
        assert_eq!(columns(58), [0, 2, 3, 4]);
    }

    /// On 80 × 24 characters, at least eight workers are visible, and of many the ones with tasks or trouble; the title counts all.
    #[test]
    fn a_small_screen_has_the_workers_that_matter() {
        let mut snapshot = workers(60);
        for (at, state) in [(3, WorkerActivity::Away), (40, WorkerActivity::Resting)] {
            snapshot.workers[at].state = state;
        }
        for at in [17, 51, 59] {
            snapshot.workers[at].state = WorkerActivity::Computing;
            snapshot.workers[at].share.tasks = 2;
        }
        let text = drawn(&mut Screen::default(), &snapshot, 80, 24).to_string();
        let rows: Vec<&str> = text.lines().filter(|line| line.contains("worker-")).collect();
        let numbers = rows.iter().filter_map(|row| row.split("worker-").nth(1)?.split(' ').next()?.parse().ok());
        let numbers: Vec<u32> = numbers.take(rows.len() - 2).collect();
        assert_eq!(numbers[..5], [18, 52, 60, 41, 1], "{text}");
        assert!(numbers.len() >= 8, "{text}");
        assert!(text.contains("Workers: 3 computing, 55 idle, 1 resting, 1 away"), "{text}");
        snapshot.workers.truncate(4);
        let totals = &mut snapshot.totals;
        (totals.runtime_s, totals.test_loss) = (3.0, Some(0.1));
        (totals.steps.first_loss, totals.steps.last_loss) = (Some(4.6), Some(0.125));
        let text = drawn(&mut Screen::default(), &snapshot, 80, 24).to_string();
        assert!(
            text.contains("worker-4 ") && text.contains("wasted tasks"),
            "few workers leave room for facts: {text}"
        );
    }

    #[test]
    fn the_first_line_says_why_a_run_ended() {
        let mut snapshot = Snapshot::of(&RunState::default(), &[]);
        snapshot.phase = SnapshotPhase::Finished;
        for (rule, words) in
            [("iterations", "finished, iteration"), ("target_loss", "finished (target loss), iteration")]
        {
            snapshot.detail = rule.into();
            assert!(current(&snapshot).starts_with(words), "{}", current(&snapshot));
        }
    }

    /// No cell of the screen contains text that controls a terminal.
    #[test]
    fn a_workers_text_stays_in_its_cells() {
        let evil = "\u{1b}[2J\u{9b}1m\u{202e}evil\n";
        let mut state = RunState::default();
        join(&mut state, 0, evil);
        state.apply(&RunEvent::Loss { time_s: 1.0, worker: WorkerId::from_slot(0), why: evil.into() });
        let snapshot = Snapshot::of(&state, &[]);
        let mut screen = Screen { trouble: Some(evil.into()), ..Screen::default() };
        let screen = drawn(&mut screen, &snapshot, 120, 40);
        let text: String = screen.buffer().content().iter().map(Cell::symbol).collect();
        assert!(text.matches("evil").count() >= 3, "{text}");
        assert!(!text.contains(is_unsafe), "{text:?}");
    }
}
