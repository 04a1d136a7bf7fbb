-- What a stretch of running waits for just now or, where it has ended before the run did, why.
ALTER TABLE session ADD COLUMN note TEXT;
